// A machine and a list of the trivial kernels, for the tests of launches.
#ifndef SWAMP_TESTS_RUNTIME_TEST_KERNELS_H_
#define SWAMP_TESTS_RUNTIME_TEST_KERNELS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/machine_impl.h"
#include "slave/kernel.h"
#include "swamp/machine.h"
#include "tests/runtime/test_kernel_ids.h"

namespace swamp::test {

// TestList owns a segment table of one operation.
class TestList {
 public:
  TestList(Operation operation) : operation_(operation) {}
  TestList(const TestList&) = delete;
  TestList& operator=(const TestList&) = delete;

  void add(std::size_t count, std::initializer_list<void*> data);
  runtime::SegmentTable table() const;
  // split() divides the list into `slaves` ranges of nearly equal counts.
  std::vector<runtime::SlaveRange> split(int slaves) const;

 private:
  Operation operation_;
  std::vector<std::size_t> counts_;
  std::vector<std::uint64_t> words_;
};

MachineConfig machine_config(const std::string& backend,
                             const std::string& transfer, std::uint32_t slaves,
                             std::size_t ldm_bytes = 0);

// run() launches `list` on `machine` and returns the results of its slaves.
std::vector<runtime::SlaveResult> run(Machine& machine, const TestList& list,
                                      runtime::Partials partials = {});

std::vector<std::string> backends();
std::vector<std::string> transfers();

}  // namespace swamp::test

#endif  // SWAMP_TESTS_RUNTIME_TEST_KERNELS_H_
