// What ranks exchange. All compare their options before a step. The slices of a
// sharded optimizer: gradients are summed in the order of the ranks by the rank
// that owns a slice, and the weights that it has updated are sent back.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <exception>
#include <map>
#include <string>

#include "master/optim/mixed_precision.h"
#include "master/partition.h"
#include "master/tensor_list.h"
#include "master/text.h"
#include "swamp/float_formats.h"
#include "swamp/foreach.h"

namespace swamp::master {
namespace {

// The counts of the float32 weights, as partition() takes them.
struct MasterWeights {
  const std::vector<std::size_t>& counts;

  std::size_t size() const noexcept { return counts.size(); }
  std::size_t count(std::size_t i) const noexcept { return counts[i]; }
  static std::uint64_t unit_traffic(std::size_t) noexcept {
    return sizeof(float);
  }
  static GrainRule grain_rule() noexcept { return {}; }
  static const SegmentChunk* chunks() noexcept { return nullptr; }
};

// Moves a boundary to the tensor's end if less than a block remains.
void close_to_end(const std::vector<std::size_t>& counts, std::size_t& segment,
                  std::size_t& element) {
  if (element != 0 && counts[segment] - element < kBlockElements) {
    ++segment;
    element = 0;
  }
}

}  // namespace

std::vector<Slice> whole_slices(const std::vector<std::size_t>& counts) {
  std::vector<Slice> slices;
  for (std::size_t p = 0; p < counts.size(); ++p) {
    slices.push_back({p, 0, counts[p]});
  }
  return slices;
}

std::vector<std::vector<Slice>> partition_slices(
    const std::vector<std::size_t>& counts, int ranks) {
  std::uint64_t bytes = 0;
  for (const std::size_t count : counts) bytes += count * sizeof(float);
  std::vector<runtime::SlaveRange> ranges(static_cast<std::size_t>(ranks));
  const int used = partition(MasterWeights{counts}, bytes, ranks, ranges.data(),
                             Shares::of_all);

  std::vector<std::vector<Slice>> shards(static_cast<std::size_t>(ranks));
  std::size_t segment = 0;
  std::size_t element = 0;
  for (int rank = 0; rank < used; ++rank) {
    const auto r = static_cast<std::size_t>(rank);
    std::size_t end_segment = ranges[r].end_segment;
    std::size_t end_unit = ranges[r].end_unit;
    if (rank + 1 == used) {
      end_segment = counts.size();
      end_unit = 0;
    }
    close_to_end(counts, end_segment, end_unit);
    for (; segment < end_segment; ++segment, element = 0) {
      shards[r].push_back({segment, element, counts[segment] - element});
    }
    if (end_unit > element && segment == end_segment) {
      shards[r].push_back({segment, element, end_unit - element});
      element = end_unit;
    }
  }
  return shards;
}

}  // namespace swamp::master

namespace swamp {

using master::Slice;

namespace {

// Pieces follow each other in a buffer, each at a multiple of 4 bytes.
std::size_t piece_bytes(ScalarType type, std::size_t count) {
  return (count * master::kScalarTypeBytes[type] + 3) / 4 * 4;
}

// Returns the bytes of the pieces of a shard; array(parameter) is the tensor
// that they are part of.
template <class Array>
std::size_t shard_bytes(const std::vector<Slice>& shard, Array array) {
  std::size_t bytes = 0;
  for (const Slice& slice : shard) {
    bytes += piece_bytes(array(slice.parameter).dtype, slice.count);
  }
  return bytes;
}

// Returns whether one element of a gradient is finite.
bool is_finite(const std::byte* element, ScalarType type) {
  std::uint16_t half = 0;
  float value = 0;
  if (type == kFloat32) {
    std::memcpy(&value, element, sizeof value);
  } else {
    std::memcpy(&half, element, sizeof half);
    value = type == kFloat16 ? float16_to_float(half) : bfloat16_to_float(half);
  }
  return std::isfinite(value);
}

const char* text_of(bool flag) { return flag ? "true" : "false"; }
std::string text_of(double value) { return master::number_text(value); }

std::string text_of(const ScalerValue& value) {
  if (const auto* flag = std::get_if<bool>(&value)) return text_of(*flag);
  if (const auto* integer = std::get_if<std::int64_t>(&value)) {
    return std::to_string(*integer);
  }
  if (const auto* real = std::get_if<double>(&value)) {
    return master::python_text(*real);
  }
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  std::string list;
  if (const auto* all = std::get_if<std::vector<std::int64_t>>(&value)) {
    for (const std::int64_t each : *all) list += std::to_string(each) + " ";
    return "[" + list + "]";
  }
  return "null";
}

std::string text_of(const Tensor& tensor) {
  return std::to_string(tensor.count) + " elements of " +
         kFloatFormats[tensor.dtype].name;
}

}  // namespace

void MixedPrecisionOptimizer::Impl::require_same_ranks(const char* call,
                                                       State state) {
  if (communicator.size() == 1 && model_communicator.size() == 1) return;
  std::map<std::string, std::string> values = {
      {"call", call},
      {"shard", text_of(options.shard)},
      {"clip_grad", master::number_text(options.clip_grad)},
      {"clip_rule",
       options.clip_rule == ClipRule::megatron ? "megatron" : "mindspore"},
      {"saturated_is_overflow", text_of(options.saturated_is_overflow)},
      {"log_num_zeros_in_grad", text_of(options.log_num_zeros_in_grad)},
      {"micro_batches", std::to_string(options.micro_batches)},
      {"reduction",
       options.reduction == GradientReduction::mean ? "mean" : "sum"}};
  const auto [name, scaler_options] = master::scaler_choice(options);
  values["scaler"] = name.empty() ? "none" : name;
  for (const auto& [option, value] : scaler_options) {
    values["scaler_options." + option] = text_of(value);
  }
  const bool with_state = state == State::compared;
  if (with_state) {
    values["accumulate_gradients() calls"] = std::to_string(accumulated);
    values["step_count()"] = std::to_string(steps);
    values["the loss scale"] = master::number_text(loss_scale);
  }
  // Ranks of another row of the grid must not go on if one row differs.
  std::exception_ptr refused;
  const auto compare = [&](auto require) {
    try {
      require();
    } catch (...) {
      refused = std::current_exception();
    }
  };
  compare([&] { model_communicator.require_same(values); });
  if (!with_state) compared = false;
  for (std::size_t p = 0; options.shard && !compared && p < parameters.size();
       ++p) {
    const ModelParameter& parameter = parameters[p];
    values["parameters[" + std::to_string(p) + "]"] =
        "'" + parameter.name + "' of group " +
        std::to_string(group_of_parameter[p]) + ", " + text_of(parameter.data) +
        ", gradient " + text_of(parameter.gradient);
  }
  // Calls visit(field, value) with each option of the groups, a double or bool.
  const auto visit_groups = [&](auto visit) {
    if (!with_state || !options.shard) return;
    for (std::size_t g = 0; g < groups.size(); ++g) {
      const std::string group = "groups[" + std::to_string(g) + "].";
      for (const auto& field : master::option_fields(groups[g])) {
        visit(group + field.name, *field.value);
      }
      for (const auto& [field, flag] : master::option_flags(groups[g])) {
        visit(group + field, *flag);
      }
    }
  };
  std::string bits;
  for (const auto& [field, value] : values) bits += field + '=' + value + '\0';
  visit_groups([&](const std::string& field, auto value) {
    bits += field;
    bits.append(reinterpret_cast<const char*>(&value), sizeof value);
  });
  // Text of many groups takes milliseconds.
  const auto texts = [&] {
    visit_groups([&](const std::string& field, auto value) {
      values[field] = text_of(value);
    });
    return values;
  };
  if (model_communicator.size() == 1) {
    communicator.require_same(bits, texts);
  } else {
    compare([&] { communicator.require_same(bits, texts); });
    const bool any = max_of_ranks(refused ? 1.0f : 0.0f) != 0;
    if (refused) std::rethrow_exception(refused);
    if (any) {
      master::refuse("ranks", "other ones that differ", "the same options");
    }
  }
  compared = true;
}

// Returns this rank's gradient of a parameter.
Tensor MixedPrecisionOptimizer::Impl::local_gradient(std::size_t parameter) {
  if (options.micro_batches == 1) return parameters[parameter].gradient;
  master::FloatArray& sum = local_sums[parameter];
  return {sum.data(), sum.size(), kFloat32};
}

// Gives every rank its shard of the sum of all ranks' gradients, added in the
// order of the ranks: the same bits as one rank that accumulates as many micro
// batches.
void MixedPrecisionOptimizer::Impl::reduce_scatter_gradients() {
  const auto ranks = static_cast<std::size_t>(communicator.size());
  const auto source = [&](std::size_t p) { return local_gradient(p); };
  std::size_t all_bytes = 0;
  for (const auto& shard : shards) all_bytes += shard_bytes(shard, source);
  const auto mine = static_cast<std::size_t>(communicator.rank());
  const std::size_t my_bytes = shard_bytes(shards[mine], source);
  std::byte* out = send_memory.reserve(all_bytes);
  std::byte* in = receive_memory.reserve(ranks * my_bytes);
  send.clear();
  receive.clear();
  for (std::size_t r = 0; r < ranks; ++r) {
    const std::byte* begin = out;
    for (const Slice& slice : shards[r]) {
      const Tensor piece = slice_of(source(slice.parameter), slice);
      const std::size_t bytes =
          piece.count * master::kScalarTypeBytes[piece.dtype];
      if (bytes != 0) std::memcpy(out, piece.data, bytes);
      out += piece_bytes(piece.dtype, piece.count);
    }
    send.push_back({begin, static_cast<std::size_t>(out - begin)});
    receive.push_back({in + r * my_bytes, my_bytes});
  }
  communicator.exchange(send.data(), receive.data());

  for (std::size_t r = 0; r < ranks; ++r) {
    pieces.clear();
    std::byte* at = in + r * my_bytes;
    for (const Slice& slice : shards[mine]) {
      const ScalarType type = source(slice.parameter).dtype;
      pieces.push_back({at, slice.count, type});
      at += piece_bytes(type, slice.count);
    }
    const bool divide =
        r + 1 == ranks && options.reduction == GradientReduction::mean;
    if (r == 0) {
      foreach_cast_(main_gradients, pieces, 1, options.machine);
    } else {
      foreach_accumulate_(main_gradients, pieces,
                          divide ? static_cast<float>(ranks) : 1,
                          options.machine);
    }
  }
}

// Returns the first rank that sent inf or nan for the element of the report,
// whose tensor is a slice of this rank; -1 if only the sum overflowed. The
// received pieces are unchanged since then.
int MixedPrecisionOptimizer::Impl::overflowing_rank(
    const OverflowReport& overflow) {
  const auto source = [&](std::size_t p) { return local_gradient(p); };
  const auto& shard = shards[static_cast<std::size_t>(communicator.rank())];
  const auto slice =
      shard.begin() + static_cast<std::ptrdiff_t>(overflow.tensor);
  const std::size_t before = shard_bytes({shard.begin(), slice}, source);
  const ScalarType type = source(slice->parameter).dtype;
  const std::size_t width = master::kScalarTypeBytes[type];
  for (std::size_t r = 0; r < receive.size(); ++r) {
    const auto* bytes = static_cast<const std::byte*>(receive[r].data);
    if (!is_finite(bytes + before + overflow.index * width, type)) {
      return static_cast<int>(r);
    }
  }
  return -1;
}

// Receives the weights that the other ranks have updated.
void MixedPrecisionOptimizer::Impl::gather_model_params() {
  std::vector<std::size_t>& bytes = rank_bytes;
  bytes.clear();
  std::size_t all_bytes = 0;
  const auto source = [&](std::size_t p) { return parameters[p].data; };
  for (const auto& shard : shards) {
    bytes.push_back(shard_bytes(shard, source));
    all_bytes += bytes.back();
  }
  std::byte* base = send_memory.reserve(all_bytes);
  const auto mine = static_cast<std::size_t>(communicator.rank());
  std::byte* my_piece = nullptr;
  const auto visit = [&](auto copy) {
    std::byte* at = base;
    for (std::size_t r = 0; r < shards.size(); ++r) {
      if (r == mine) my_piece = at;
      for (const Slice& slice : shards[r]) {
        const Tensor piece = slice_of(parameters[slice.parameter].data, slice);
        copy(r, at, piece, piece.count * master::kScalarTypeBytes[piece.dtype]);
        at += piece_bytes(piece.dtype, piece.count);
      }
    }
  };
  visit([&](std::size_t r, std::byte* at, const Tensor& piece,
            std::size_t count) {
    if (r == mine && count != 0) std::memcpy(at, piece.data, count);
  });
  communicator.all_gather_varied(my_piece, bytes.data(), base);
  visit([&](std::size_t r, const std::byte* at, const Tensor& piece,
            std::size_t count) {
    if (r != mine && count != 0) std::memcpy(piece.data, at, count);
  });
}

std::vector<std::vector<float>> MixedPrecisionOptimizer::Impl::gather_slices(
    const std::vector<const float*>& mine) const {
  std::vector<float> piece;
  std::size_t i = 0;
  for (const master::MainSlice& main : slices) {
    if (main.slice.count != 0) {
      piece.insert(piece.end(), mine[i], mine[i] + main.slice.count);
    }
    ++i;
  }
  std::vector<std::size_t> bytes;
  std::size_t all = 0;
  for (const auto& shard : shards) {
    std::size_t count = 0;
    for (const Slice& slice : shard) count += slice.count;
    bytes.push_back(count * sizeof(float));
    all += count;
  }
  std::vector<float> memory(all);
  const float* at = piece.data();
  if (options.shard) {
    communicator.all_gather_varied(piece.data(), bytes.data(), memory.data());
    at = memory.data();
  }
  std::vector<std::vector<float>> whole(parameters.size());
  for (const auto& shard : shards) {
    for (const Slice& slice : shard) {
      whole[slice.parameter].insert(whole[slice.parameter].end(), at,
                                    at + slice.count);
      at += slice.count;
    }
  }
  return whole;
}

}  // namespace swamp
