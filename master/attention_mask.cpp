// The mask of attention as the kernels read it: a float that is added to each
// logit. A boolean mask and one of 16 bits are converted, and broadcast
// dimensions expanded, for the panel of queries or keys that is computed next,
// in the order in which a kernel reads it.
#include "master/attention_mask.h"

#include <cstdint>
#include <limits>
#include <string>

#include "master/row_launch.h"
#include "master/text.h"
#include "swamp/float_formats.h"

namespace swamp::master {
namespace {

// A piece of each row is transposed at a time.
constexpr std::size_t kPiece = 64;

}  // namespace

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
    if (mask.dtype != kFloat32 && mask.dtype != q.dtype) {
      refuse("options.mask.dtype", std::to_string(mask.dtype),
             std::to_string(kFloat32) + " (float32) or " +
                 std::to_string(q.dtype) + " (as 'q' has)");
    }
    bytes = kScalarTypeBytes[mask.dtype];
  }
  require_array("options.mask.data", mask.data, bytes,
                mask.batch * mask.heads * mask.queries * mask.keys);
}

void PackedMask::pack_queries(const Panels& panels, std::size_t keys,
                              std::size_t first, std::size_t count) {
  if (mask_.data == nullptr) return;
  panels_ = mask_.queries == 1 ? 1 : panels.per_head();
  const std::size_t lanes = panels.lanes;
  panel_floats_ = keys * lanes;
  find_values(first, count, 1);
  float* to = memory_.reserve(most_ * panels_ * panel_floats_);
  for (const std::size_t head : firsts_) {
    const std::size_t matrix = matrix_of(head);
    for (std::size_t panel = 0; panel < panels_; ++panel) {
      for (std::size_t key = 0; key < keys; key += kPiece) {
        const std::size_t units = std::min(kPiece, keys - key);
        for (std::size_t lane = 0; lane < lanes; ++lane) {
          float piece[kPiece];
          read(matrix, std::min(panel * lanes + lane, panels.rows - 1), key,
               units, piece);
          for (std::size_t i = 0; i < units; ++i) {
            to[i * lanes + lane] = piece[i];
          }
        }
        to += units * lanes;
      }
    }
  }
}

void PackedMask::pack_keys(std::size_t key, std::size_t rows, std::size_t lanes,
                           std::size_t queries, std::size_t first,
                           std::size_t count) {
  if (mask_.data == nullptr) return;
  const std::size_t group = heads_ / key_heads_;
  panels_ = 1;
  panel_floats_ = group * queries * lanes;
  find_values(first, count, group);
  float* to = memory_.reserve(most_ * panel_floats_);
  for (const std::size_t head : firsts_) {
    for (std::size_t i = 0; i < group; ++i) {
      const std::size_t matrix = matrix_of(head * group + i);
      for (std::size_t query = 0; query < queries; ++query, to += lanes) {
        read(matrix, query, key, rows, to);
        std::fill(to + rows, to + lanes, 0.0f);
      }
    }
  }
}

const float* PackedMask::values(std::size_t i, std::size_t panel) {
  if (mask_.data == nullptr) return nullptr;
  return memory_.data() +
         (places_[i] * panels_ + (panels_ == 1 ? 0 : panel)) * panel_floats_;
}

// matrix_of() is the matrix [queries, keys] of a head of q.
std::size_t PackedMask::matrix_of(std::size_t head) const {
  return (mask_.batch == 1 ? 0 : head / heads_) * mask_.heads +
         (mask_.heads == 1 ? 0 : head % heads_);
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
    std::size_t& place = found[matrix_of(head * group)];
    if (place == kNone) {
      place = firsts_.size();
      firsts_.push_back(head);
    }
    places_.push_back(place);
  }
}

// read() computes the values of `count` keys, from `key` on, of a query.
void PackedMask::read(std::size_t matrix, std::size_t query, std::size_t key,
                      std::size_t count, float* to) const {
  const std::size_t row =
      (matrix * mask_.queries + (mask_.queries == 1 ? 0 : query)) * mask_.keys;
  const auto convert = [&](const auto* from, auto value_of) {
    if (mask_.keys == 1) {
      std::fill_n(to, count, value_of(from[row]));
    } else {
      from += row + key;
      std::transform(from, from + count, to, value_of);
    }
  };
  if (mask_.is_bool) {
    convert(static_cast<const std::uint8_t*>(mask_.data),
            [](std::uint8_t byte) {
              return byte != 0 ? 0.0f : -std::numeric_limits<float>::infinity();
            });
  } else if (mask_.dtype == kFloat32) {
    convert(static_cast<const float*>(mask_.data),
            [](float value) { return value; });
  } else if (mask_.dtype == kFloat16) {
    convert(static_cast<const std::uint16_t*>(mask_.data),
            [](std::uint16_t bits) { return float16_to_float(bits); });
  } else {
    convert(static_cast<const std::uint16_t*>(mask_.data),
            [](std::uint16_t bits) { return bfloat16_to_float(bits); });
  }
}

}  // namespace swamp::master
