// The mask of attention as the kernels read it: a float that is added to each
// logit. Slaves convert a boolean mask and one of 16 bits, and expand broadcast
// dimensions, for the panels of queries or keys that are computed next, in the
// order in which a kernel reads it.
#include "master/attention_mask.h"

#include <cstdint>
#include <string>

#include "master/row_launch.h"
#include "master/text.h"
#include "slave/attention_args.h"

namespace swamp::master {

void require_mask(const Heads& q, const Heads& k, const AttentionMask& mask) {
  if (mask.data == nullptr) return;
  const auto require = [](const char* field, std::size_t got,
                          std::size_t size) {
    if (got == 1 || got == size) return;
    refuse(std::string("options.mask.") + field, std::to_string(got),
           "1 or " + std::to_string(size));
  };
  require("batch", mask.batch, q.batch);
  require("heads", mask.heads, q.heads);
  require("queries", mask.queries, q.rows);
  require("keys", mask.keys, k.rows);
  std::size_t bytes = 1;
  if (!mask.is_bool) {
    Checker("options.mask").dtype(mask.dtype, q.dtype, "q", true);
    bytes = kScalarTypeBytes[mask.dtype];
  }
  require_array("options.mask.data", mask.data, bytes,
                mask.batch * mask.heads * mask.queries * mask.keys);
}

std::size_t PackedMask::element_bytes() const {
  return mask_.is_bool ? 1 : kScalarTypeBytes[mask_.dtype];
}

// run() launches attention_mask on the segments that add(table) adds: operation
// 0 is of whole panels, 1 of the last panel of a head. The lanes are queries
// or, if `by_query`, keys. A dimension of 1 is shared by all lanes or by all
// units.
template <class Add>
void PackedMask::run(const Panels& panels, bool by_query, std::size_t segments,
                     const Add& add) {
  using At = slave::AttentionMaskOperand;
  const std::size_t bytes = element_bytes(), row_bytes = mask_.keys * bytes;
  const bool shares_lanes = (by_query ? mask_.keys : mask_.queries) == 1;
  const bool shares_units = (by_query ? mask_.queries : mask_.keys) == 1;
  const std::size_t last = panels.rows % panels.lanes;
  slave::AttentionMaskArgs args[2];
  Operation operations[2];
  for (int i = 0; i < 2; ++i) {
    const std::size_t rows = i == 1 && last != 0 ? last : panels.lanes;
    args[i] = {static_cast<std::uint32_t>(panels.lanes),
               static_cast<std::uint32_t>(rows), shares_lanes ? 1u : 0u,
               mask_.is_bool ? 1u : 0u};
    Operation& operation = operations[i] =
        Operation(row_kernel<KernelFamily::attention_mask>(
                      mask_.is_bool ? kFloat32 : mask_.dtype),
                  &args[i]);
    operation.remove_operand(At::mask);
    if (shares_units) operation.operands[At::mask].access = Access::constant;
    const std::size_t elements = shares_lanes ? 1 : rows;
    if (by_query) {
      operation.set_lines(At::mask, 1, elements * bytes, 0,
                          shares_units ? 0 : row_bytes);
    } else {
      operation.set_lines(At::mask, elements, bytes, row_bytes,
                          shares_units ? 0 : bytes);
    }
    operation.set_unit_bytes(At::values, panels.lanes * sizeof(float));
  }
  Workspace& workspace = Workspace::of_this_thread();
  RowTable table(operations, 2, segments, false, row_grains(panels.lanes),
                 workspace.segments());
  add(table);
  workspace.run(machine_, table.list());
}

void PackedMask::pack_queries(const Panels& panels, std::size_t first,
                              std::size_t count) {
  if (mask_.data == nullptr) return;
  const bool shared = mask_.queries == 1;
  panels_ = shared ? 1 : panels.per_head();
  panel_floats_ = k_.rows * panels.lanes;
  find_values(first, count, 1);
  float* to = memory_.reserve(most_ * panels_ * panel_floats_);
  run(panels, false, firsts_.size() * panels_, [&](RowTable& table) {
    for (const std::size_t head : firsts_) {
      const std::byte* const matrix = matrix_of(head);
      for (std::size_t panel = 0; panel < panels_; ++panel) {
        const std::size_t row = shared ? 0 : panels.row(panel);
        table.add(k_.rows, {matrix + row * mask_.keys * element_bytes(), to},
                  shared ? 0 : panels.is_last(panel));
        to += panel_floats_;
      }
    }
  });
}

void PackedMask::pack_keys(const Panels& keys, std::size_t first_panel,
                           std::size_t panels, std::size_t first,
                           std::size_t count) {
  if (mask_.data == nullptr) return;
  const std::size_t group = q_.heads / k_.heads;
  const bool shared = mask_.keys == 1;
  panels_ = panels;
  panel_floats_ = group * q_.rows * keys.lanes;
  find_values(first, count, group);
  float* to = memory_.reserve(most_ * panels * panel_floats_);
  run(keys, true, firsts_.size() * panels * group, [&](RowTable& table) {
    for (const std::size_t head : firsts_) {
      for (std::size_t panel = first_panel; panel < first_panel + panels;
           ++panel) {
        const std::size_t key = shared ? 0 : keys.row(panel);
        for (std::size_t i = 0; i < group; ++i) {
          table.add(q_.rows,
                    {matrix_of(head * group + i) + key * element_bytes(), to},
                    keys.is_last(panel));
          to += q_.rows * keys.lanes;
        }
      }
    }
  });
}

const float* PackedMask::values(std::size_t i, std::size_t panel) {
  if (mask_.data == nullptr) return nullptr;
  return memory_.data() +
         (places_[i] * panels_ + (panels_ == 1 ? 0 : panel)) * panel_floats_;
}

// index_of() returns the index of the matrix [queries, keys] of a head of q.
std::size_t PackedMask::index_of(std::size_t head) const {
  return (mask_.batch == 1 ? 0 : head / q_.heads) * mask_.heads +
         (mask_.heads == 1 ? 0 : head % q_.heads);
}

const std::byte* PackedMask::matrix_of(std::size_t head) const {
  return static_cast<const std::byte*>(mask_.data) +
         index_of(head) * mask_.queries * mask_.keys * element_bytes();
}

// find_values() finds which of `count` heads have a mask of their own. A head
// is `group` heads of q.
void PackedMask::find_values(std::size_t first, std::size_t count,
                             std::size_t group) {
  constexpr std::size_t kNone = ~std::size_t{0};
  std::vector<std::size_t> found(mask_.batch * mask_.heads, kNone);
  // The first launch has the most heads: later ones need no more memory.
  most_ = std::min(std::max(most_, count), found.size());
  firsts_.clear();
  places_.clear();
  for (std::size_t head = first; head < first + count; ++head) {
    std::size_t& place = found[index_of(head * group)];
    if (place == kNone) {
      place = firsts_.size();
      firsts_.push_back(head);
    }
    places_.push_back(place);
  }
}

}  // namespace swamp::master
