#include "swamp/attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "master/rows.h"
#include "master/text.h"
#include "slave/attention_args.h"

namespace swamp {

using master::RowTable;
using master::Workspace;
using slave::AttentionArgs;
using slave::AttentionPosition;
using slave::AttentionState;

namespace {

// ---- Validation

// require_heads() throws Error unless the dtype is one of the three and the
// data are aligned, not null and of a possible size.
void require_heads(const char* name, const Heads& x) {
  const auto field = [&](const char* text) {
    return std::string(name) + "." + text;
  };
  // The number of rows of a matrix of all heads; 0 if it is too large.
  std::size_t rows = x.rows;
  for (const auto& [size, text] :
       {std::pair{x.heads, "heads"}, std::pair{x.batch, "batch"}}) {
    if (size == 0 || rows == 0) {
      rows = 0;
      break;
    }
    if (rows > master::kMaxBytes / size) {
      master::refuse(field(text), std::to_string(size),
                     "at most " + std::to_string(master::kMaxBytes / rows));
    }
    rows *= size;
  }
  master::require_matrix(name, {x.data, rows, x.columns, x.dtype});
  if (x.columns == 0 || x.columns > slave::kMaxAttentionColumns) {
    master::refuse(field("columns"), std::to_string(x.columns),
                   "1 to " + std::to_string(slave::kMaxAttentionColumns),
                   x.columns == 0 ? SWAMP_INVALID_ARGUMENT : SWAMP_UNSUPPORTED);
  }
}

// require_field() throws unless a field of `name` is as `why` requires.
void require_field(const std::string& name, std::size_t got,
                   std::size_t expected, const char* why) {
  if (got == expected) return;
  master::refuse(name, std::to_string(got),
                 std::to_string(expected) + " (as '" + why + "' has)");
}

void require_mask(const Heads& q, const Heads& k, const AttentionMask& mask) {
  if (mask.data == nullptr) return;
  const auto require = [](const char* field, std::size_t got,
                          std::size_t size) {
    if (got == 1 || got == size) return;
    master::refuse(std::string("options.mask.") + field, std::to_string(got),
                   "1 or " + std::to_string(size));
  };
  require("batch", mask.batch, q.batch);
  require("heads", mask.heads, q.heads);
  require("queries", mask.queries, q.rows);
  require("keys", mask.keys, k.rows);
  std::size_t bytes = 1;
  if (!mask.is_bool) {
    if (mask.dtype != kFloat32 && mask.dtype != q.dtype) {
      master::refuse("options.mask.dtype", std::to_string(mask.dtype),
                     std::to_string(kFloat32) + " (float32) or " +
                         std::to_string(q.dtype) + " (as 'q' has)");
    }
    bytes = kScalarTypeBytes[mask.dtype];
  }
  master::require_array("options.mask.data", mask.data, bytes,
                        mask.batch * mask.heads * mask.queries * mask.keys);
}

// require_attention() checks what forward and backward have in common.
void require_attention(const Heads& q, const Heads& k, const Heads& v,
                       const AttentionOptions& options) {
  require_heads("q", q);
  require_heads("k", k);
  require_heads("v", v);
  require_field("k.dtype", k.dtype, q.dtype, "q");
  require_field("v.dtype", v.dtype, q.dtype, "q");
  require_field("k.batch", k.batch, q.batch, "q");
  require_field("v.batch", v.batch, q.batch, "q");
  require_field("k.columns", k.columns, q.columns, "q");
  require_field("v.heads", v.heads, k.heads, "k");
  require_field("v.rows", v.rows, k.rows, "k");
  if (k.heads == 0 ? q.heads != 0 : q.heads % k.heads != 0) {
    master::refuse("k.heads", std::to_string(k.heads),
                   "a divisor of q.heads, " + std::to_string(q.heads));
  }
  require_mask(q, k, options.mask);
}

// require_output() checks an array of `rows` of q's heads, and so many columns.
void require_output(const char* name, const Heads& x, const Heads& like,
                    std::size_t columns, const char* columns_of) {
  const auto field = [&](const char* text) {
    return std::string(name) + "." + text;
  };
  require_heads(name, x);
  require_field(field("dtype"), x.dtype, like.dtype, "q");
  require_field(field("batch"), x.batch, like.batch, "q");
  require_field(field("heads"), x.heads, like.heads, "q");
  require_field(field("rows"), x.rows, like.rows, "q");
  require_field(field("columns"), x.columns, columns, columns_of);
}

// ---- Blocks

// Blocks divides the rows of every head into blocks of `lanes` rows; the last
// of a head may have fewer.
struct Blocks {
  std::size_t heads;  // of all batches
  std::size_t rows;   // of a head
  std::size_t lanes;

  std::size_t per_head() const { return (rows + lanes - 1) / lanes; }
  std::size_t count() const { return heads * per_head(); }
  std::size_t head(std::size_t block) const { return block / per_head(); }
  // The first row in its head.
  std::size_t row(std::size_t block) const {
    return block % per_head() * lanes;
  }
  // The first row of all.
  std::size_t flat_row(std::size_t block) const {
    return head(block) * rows + row(block);
  }
  std::size_t rows_of(std::size_t block) const {
    return std::min(lanes, rows - row(block));
  }
  // 1 if the block has fewer rows than lanes.
  std::size_t is_last(std::size_t block) const {
    return rows_of(block) != lanes ? 1 : 0;
  }
};

// BlockOperations is an operation whose unit is a block: [0] of `lanes` rows,
// [1] of the last block of a head.
struct BlockOperations {
  AttentionArgs args[2];
  Operation operations[2];

  // set_bytes(operation, rows) sets the bytes of the operands of a block.
  template <class SetBytes>
  BlockOperations(const KernelInfo& kernel, const AttentionArgs& common,
                  const Blocks& blocks, std::size_t scratch_bytes,
                  SetBytes set_bytes) {
    const std::size_t last = blocks.rows % blocks.lanes;
    for (int i = 0; i < 2; ++i) {
      const std::size_t rows = i == 1 && last != 0 ? last : blocks.lanes;
      args[i] = common;
      args[i].rows = static_cast<std::uint32_t>(rows);
      operations[i] = Operation(kernel, &args[i]);
      operations[i].scratch_bytes = static_cast<std::uint32_t>(scratch_bytes);
      set_bytes(operations[i], rows);
    }
  }
  BlockOperations(const BlockOperations&) = delete;

  RowTable table(std::size_t count, master::Buffer<std::byte>& memory) const {
    return {operations, 2, count, false, {1, ~std::size_t{0}}, memory};
  }
};

// PackedMask is a mask as the kernels read it: for each block, `lanes` float32
// values for each unit. It is computed by the calling thread: a mask is usually
// that of one head.
class PackedMask {
 public:
  // One value for each lane of `blocks`, whose rows are the queries, for each
  // of `keys`.
  PackedMask(const AttentionMask& mask, std::size_t heads, const Blocks& blocks,
             std::size_t keys)
      : mask_(mask), heads_(heads), blocks_(blocks), keys_(keys) {
    if (mask.data == nullptr) return;
    const std::size_t per_head = distinct_blocks();
    float* to = values_.reserve(mask.batch * mask.heads * per_head * keys *
                                blocks.lanes);
    for (std::size_t head = 0; head < mask.batch * mask.heads; ++head) {
      for (std::size_t block = 0; block < per_head; ++block) {
        for (std::size_t j = 0; j < keys; ++j) {
          for (std::size_t i = 0; i < blocks.lanes; ++i) {
            // Lanes without a row get the value of the last one.
            const std::size_t query =
                std::min(block * blocks.lanes + i, blocks.rows - 1);
            *to++ =
                value((head * mask.queries + (mask.queries == 1 ? 0 : query)) *
                          mask.keys +
                      (mask.keys == 1 ? 0 : j));
          }
        }
      }
    }
  }

  const float* block(std::size_t block) const {
    if (mask_.data == nullptr) return nullptr;
    const std::size_t head = blocks_.head(block);
    const std::size_t batch = mask_.batch == 1 ? 0 : head / heads_;
    const std::size_t in_batch = mask_.heads == 1 ? 0 : head % heads_;
    const std::size_t in_head =
        mask_.queries == 1 ? 0 : block % blocks_.per_head();
    return values_.data() +
           ((batch * mask_.heads + in_batch) * distinct_blocks() + in_head) *
               keys_ * blocks_.lanes;
  }

 private:
  std::size_t distinct_blocks() const {
    return mask_.queries == 1 ? 1 : blocks_.per_head();
  }
  float value(std::size_t i) const {
    if (mask_.is_bool) {
      return static_cast<const std::uint8_t*>(mask_.data)[i] != 0
                 ? 0.0f
                 : -std::numeric_limits<float>::infinity();
    }
    if (mask_.dtype == kFloat32)
      return static_cast<const float*>(mask_.data)[i];
    const std::uint16_t bits = static_cast<const std::uint16_t*>(mask_.data)[i];
    return mask_.dtype == kFloat16 ? float16_to_float(bits)
                                   : bfloat16_to_float(bits);
  }

  const AttentionMask& mask_;
  std::size_t heads_;  // of a batch
  Blocks blocks_;
  std::size_t keys_;
  mutable master::Buffer<float> values_;
};

// ---- Attention

// Attention is one call, after validation.
struct Attention {
  Machine::Impl& machine;
  const Heads& q;
  const Heads& k;
  const Heads& v;
  const AttentionOptions& options;
  AttentionArgs args;
  Blocks queries;
  std::size_t element_bytes;

  Attention(Machine::Impl& where, const Heads& query, const Heads& key,
            const Heads& value, const AttentionOptions& how)
      : machine(where),
        q(query),
        k(key),
        v(value),
        options(how),
        args{static_cast<std::uint32_t>(q.columns),
             static_cast<std::uint32_t>(v.columns),
             0,
             0,
             how.scale.value_or(static_cast<float>(
                 1 / std::sqrt(static_cast<double>(q.columns)))),
             0},
        queries{q.batch * q.heads, q.rows, 0},
        element_bytes(kScalarTypeBytes[q.dtype]) {}

  std::byte* row(const Heads& x, std::size_t i) const {
    return static_cast<std::byte*>(x.data) + i * x.columns * element_bytes;
  }
  // key_head() is the head of k and v, of all batches, that a head of q uses.
  std::size_t key_head(std::size_t head) const {
    return head / (q.heads / k.heads);
  }
  // visible_keys() is the number of keys that query 0 sees: query i sees i
  // more. Negative if it sees none.
  std::int64_t visible_keys() const {
    switch (options.causal) {
      case AttentionCausal::top_left:
        return 1;
      case AttentionCausal::bottom_right:
        return 1 + static_cast<std::int64_t>(k.rows) -
               static_cast<std::int64_t>(q.rows);
      case AttentionCausal::none:
        break;
    }
    return AttentionPosition::kAll;
  }

  // attention_operation() streams keys and values past a block of queries.
  Operation attention_operation() const {
    Operation operation(master::row_kernel<KernelFamily::attention, 5>(q.dtype),
                        &args);
    operation.set_unit_bytes(0, q.columns * element_bytes);
    operation.set_unit_bytes(1, v.columns * element_bytes);
    operation.set_unit_bytes(2, q.columns * args.lanes * sizeof(float));
    operation.set_unit_bytes(
        3, options.mask.data == nullptr ? 0 : args.lanes * sizeof(float));
    operation.tile_step =
        static_cast<std::uint32_t>(slave::attention_keys(q.columns, v.columns));
    operation.scratch_bytes =
        static_cast<std::uint32_t>(slave::attention_scratch_bytes(
            q.columns, v.columns, args.lanes, q.dtype == kFloat32));
    return operation;
  }
  std::size_t state_bytes() const {
    return AttentionState::bytes(args.lanes, v.columns);
  }
  BlockOperations pack_operations(const Heads& x, const Blocks& blocks) const {
    AttentionArgs packed = args;
    packed.columns = static_cast<std::uint32_t>(x.columns);
    return {master::row_kernel<KernelFamily::attention_pack, 2>(x.dtype),
            packed, blocks, slave::attention_output_scratch_bytes(x.columns),
            [&](Operation& operation, std::size_t rows) {
              operation.set_unit_bytes(0, rows * x.columns * element_bytes);
              operation.set_unit_bytes(
                  1, blocks.lanes * x.columns * sizeof(float));
            }};
  }
  BlockOperations output_operations() const {
    return {master::row_kernel<KernelFamily::attention_output, 3>(q.dtype),
            args, queries, slave::attention_output_scratch_bytes(v.columns),
            [&](Operation& operation, std::size_t rows) {
              operation.set_unit_bytes(0, rows * v.columns * element_bytes);
              operation.set_unit_bytes(1, state_bytes());
              operation.set_unit_bytes(2, rows * sizeof(float));
            }};
  }

  // choose_lanes() sets the size of a block: the largest that fits into LDM,
  // but not twice as many lanes as `rows`. fits() returns the need of the
  // operation that needs the most LDM.
  template <class Need>
  void choose_lanes(Blocks& blocks, Need need_of) {
    for (std::size_t lanes = slave::kMaxAttentionLanes;; lanes /= 2) {
      blocks.lanes = lanes;
      args.lanes = static_cast<std::uint32_t>(lanes);
      if (lanes == slave::kAttentionLanes) {
        master::require_ldm("q", {q.data, q.rows, q.columns, q.dtype},
                            need_of());
        return;
      }
      if (lanes / 2 < blocks.rows && need_of().fits()) return;
    }
  }

  // pack() computes the packed blocks of x, `stride` floats apart.
  void pack(const Heads& x, const Blocks& blocks, float* packed,
            std::size_t stride) const {
    Workspace& workspace = Workspace::of_this_thread();
    const BlockOperations pack = pack_operations(x, blocks);
    RowTable table = pack.table(blocks.count(), workspace.segments());
    for (std::size_t i = 0; i < blocks.count(); ++i) {
      table.add(1, {row(x, blocks.flat_row(i)), packed + i * stride},
                blocks.is_last(i));
    }
    workspace.run(machine, table.list());
  }

  void forward(const Heads& out, float* lse) {
    choose_lanes(queries, [&] {
      const auto need = [&](const Operation& operation, std::size_t partial) {
        return runtime::ldm_need(machine, operation, partial);
      };
      return std::max({need(attention_operation(), state_bytes()),
                       need(pack_operations(q, queries).operations[0], 0),
                       need(output_operations().operations[0], 0)},
                      [](const runtime::LdmNeed& a, const runtime::LdmNeed& b) {
                        return a.needed_bytes < b.needed_bytes;
                      });
    });
    const std::size_t count = queries.count();
    const std::size_t packed_floats = q.columns * args.lanes;
    const std::size_t state_floats = state_bytes() / sizeof(float);
    const PackedMask mask(options.mask, q.heads, queries, k.rows);
    std::vector<AttentionPosition> positions(queries.per_head());
    for (std::size_t i = 0; i < positions.size(); ++i) {
      positions[i] = {visible_keys() +
                      static_cast<std::int64_t>(queries.row(i))};
    }
    Workspace& workspace = Workspace::of_this_thread();
    // The packed queries, and the state of a block that sees no key.
    float* const packed =
        workspace.row_values<float>(count * packed_floats + state_floats);
    float* const empty = packed + count * packed_floats;
    std::fill(empty, empty + state_floats, 0.0f);
    pack(q, queries, packed, packed_floats);

    const Operation operation = attention_operation();
    const master::GrainRule whole_segments{std::max<std::size_t>(1, k.rows),
                                           ~std::size_t{0}};
    RowTable table(operation, count, false, whole_segments,
                   workspace.segments());
    for (std::size_t i = 0; i < count; ++i) {
      const AttentionPosition& position = positions[i % positions.size()];
      const std::int64_t last =
          position.visible + static_cast<std::int64_t>(queries.rows_of(i)) - 1;
      const auto keys = static_cast<std::size_t>(
          std::clamp<std::int64_t>(last, 0, static_cast<std::int64_t>(k.rows)));
      const std::size_t first_key = key_head(queries.head(i)) * k.rows;
      table.add(keys, {row(k, first_key), row(v, first_key),
                       packed + i * packed_floats, mask.block(i), &position});
    }
    workspace.run(machine, table.list(), state_bytes());

    std::vector<const void*> states(count, empty);
    workspace.for_each_partial<float>(
        table.list(),
        [&](std::size_t i, const float& state) { states[i] = &state; });
    const BlockOperations output = output_operations();
    RowTable outputs = output.table(count, workspace.segments());
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t first = queries.flat_row(i);
      outputs.add(1, {row(out, first), states[i], lse + first},
                  queries.is_last(i));
    }
    workspace.run(machine, outputs.list());
  }
};

}  // namespace

void attention(const Heads& q, const Heads& k, const Heads& v, const Heads& out,
               float* lse, const AttentionOptions& options, Machine* machine) {
  require_attention(q, k, v, options);
  require_output("out", out, q, v.columns, "v");
  const std::size_t rows = q.batch * q.heads * q.rows;
  master::require_array("lse", lse, sizeof(float), rows);
  Machine::Impl& impl = master::impl_of(machine);
  if (rows == 0) return;
  Attention(impl, q, k, v, options).forward(out, lse);
}

}  // namespace swamp
