// The kernels of every ISA, and how a test runs one.
#ifndef SWAMP_TESTS_SLAVE_RUN_KERNEL_H_
#define SWAMP_TESTS_SLAVE_RUN_KERNEL_H_

#include <gtest/gtest.h>

#include <vector>

#include "slave/kernel_list.h"
#include "slave/reference_table.h"

namespace swamp::test {

using F = KernelFamily;
using slave::kernel_of;

// kernel_tables_here() returns the tables that this CPU can run, the references
// first.
inline const std::vector<KernelTable>& kernel_tables_here() {
  static const std::vector<KernelTable> tables = [] {
    std::vector<KernelTable> all = {
        {"reference", [] { return true; }, slave::reference::reference_rows()}};
    const KernelTables compiled = kernel_tables();
    for (std::size_t i = 0; i < compiled.count; ++i) {
      if (compiled.tables[i].runnable()) all.push_back(compiled.tables[i]);
    }
    return all;
  }();
  return tables;
}

// run_kernel() runs kernel `id` of a table on one tile.
inline Result run_kernel(const KernelTable& table, int id, const void* args,
                         const std::vector<void*>& operands, std::size_t count,
                         void* partial = nullptr) {
  Tile tile;
  tile.operands = operands.data();
  tile.count = count;
  tile.partial = partial;
  Result result;
  (*table.rows[id].function)(args, tile, result);
  return result;
}

}  // namespace swamp::test

#endif  // SWAMP_TESTS_SLAVE_RUN_KERNEL_H_
