// The mask of an attention: its validation, and its values in the order in
// which the kernels read them.
#ifndef SWAMP_MASTER_ATTENTION_MASK_H_
#define SWAMP_MASTER_ATTENTION_MASK_H_

#include <algorithm>
#include <cstddef>
#include <vector>

#include "master/buffer.h"
#include "runtime/machine_impl.h"
#include "swamp/attention.h"

namespace swamp::master {

// Panels divides the rows of every head into panels of `lanes` rows; the last
// of a head may have fewer.
struct Panels {
  std::size_t heads;  // of all batches
  std::size_t rows;   // of a head
  std::size_t lanes;

  std::size_t per_head() const { return (rows + lanes - 1) / lanes; }
  std::size_t count() const { return heads * per_head(); }
  std::size_t head(std::size_t panel) const { return panel / per_head(); }
  // The first row in its head.
  std::size_t row(std::size_t panel) const {
    return panel % per_head() * lanes;
  }
  // The first row of all.
  std::size_t flat_row(std::size_t panel) const {
    return head(panel) * rows + row(panel);
  }
  std::size_t rows_of(std::size_t panel) const {
    return std::min(lanes, rows - row(panel));
  }
  // 1 if the panel has fewer rows than lanes.
  std::size_t is_last(std::size_t panel) const {
    return rows_of(panel) != lanes ? 1 : 0;
  }
};

// require_mask() throws Error unless the mask fits q and k.
void require_mask(const Heads& q, const Heads& k, const AttentionMask& mask);

// PackedMask is what one launch needs of a mask: for each panel, `lanes`
// float32 values for each unit. Heads with the same mask share their values.
class PackedMask {
 public:
  PackedMask(Machine::Impl& machine, const AttentionMask& mask, const Heads& q,
             const Heads& k)
      : machine_(machine), mask_(mask), q_(q), k_(k) {}

  // pack_queries() packs `count` heads of q, from head `first` of all batches
  // on. The lanes are queries, the units keys.
  void pack_queries(const Panels& panels, std::size_t first, std::size_t count);
  // pack_keys() packs `panels` panels of each of `count` heads of k, from panel
  // `first_panel` of head `first` on. The lanes are keys, the units the queries
  // of the heads that share them.
  void pack_keys(const Panels& keys, std::size_t first_panel,
                 std::size_t panels, std::size_t first, std::size_t count);

  // Returns the values of panel `panel` of head `i` of the last pack.
  const float* values(std::size_t i, std::size_t panel);

 private:
  std::size_t element_bytes() const;
  std::size_t index_of(std::size_t head) const;
  const std::byte* matrix_of(std::size_t head) const;
  void find_values(std::size_t first, std::size_t count, std::size_t group);
  template <class Add>
  void run(const Panels& panels, bool by_query, std::size_t segments,
           const Add& add);

  Machine::Impl& machine_;
  const AttentionMask& mask_;
  const Heads& q_;
  const Heads& k_;
  std::size_t panels_ = 1;           // of a head with a mask of their own
  std::size_t panel_floats_ = 0;     // of a panel
  std::size_t most_ = 0;             // heads with a mask of their own
  std::vector<std::size_t> firsts_;  // the heads with a mask of their own
  std::vector<std::size_t> places_;  // of each head's mask
  Buffer<float> memory_;
};

}  // namespace swamp::master

#endif  // SWAMP_MASTER_ATTENTION_MASK_H_
