// The implementation of MixedPrecisionOptimizer.
#ifndef SWAMP_MASTER_OPTIM_MIXED_PRECISION_H_
#define SWAMP_MASTER_OPTIM_MIXED_PRECISION_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "master/buffer.h"
#include "runtime/launch.h"
#include "swamp/foreach.h"
#include "swamp/mixed_precision.h"

namespace swamp::master {

using InnerOptions = std::variant<AdamOptions, SgdOptions>;

// Throws Error that names option and value. `prefix` precedes the name, for
// example "groups[1].".
void check_inner_options(InnerOptions options, const std::string& prefix);

// Returns `options` with the values that the group overrides.
InnerOptions group_options(const InnerOptions& options,
                           const ParameterGroup& group);

double& lr_of(InnerOptions& options);

// OptionField is a number of the options: its name in state dicts and in the
// options, and its range.
struct OptionField {
  enum Range { kNotNegative, kFraction, kFinite };

  const char* name;
  double* value;
  const char* option = name;
  Range range = kNotNegative;
};
std::vector<OptionField> option_fields(InnerOptions& options);

inline constexpr std::size_t kMaxStates = 3;

// Returns the options that are flags, and their torch names.
std::vector<std::pair<const char*, bool*>> option_flags(InnerOptions& options);

// Returns the names of the state arrays of a weight, in the order of StepLists;
// at most kMaxStates.
std::vector<const char*> state_names(const InnerOptions& options);

// StepLists is what a step of one group reads and writes, tensor by tensor;
// params and states are float32.
struct StepLists {
  std::size_t group;
  std::vector<Tensor> params;
  std::vector<Tensor> gradients;
  std::vector<Tensor> states[kMaxStates];
  std::vector<Tensor> model_params;  // 16-bit, also written; or empty
};

// Slice is a range of elements of a parameter.
struct Slice {
  std::size_t parameter;  // in the order of all groups
  std::size_t begin;
  std::size_t count;
};

// Returns one slice for each parameter; `counts` are their elements.
std::vector<Slice> whole_slices(const std::vector<std::size_t>& counts);

// Divides the parameters into one shard for each rank, of nearly equal size,
// without padding. Cuts lie between grains of the list, and never less than a
// block before a tensor's end. So the grains of the shards are those of the
// list, and a norm adds the same numbers in the same order on any number of
// ranks (as long as a grain is one block: up to kMaxGrains of them).
std::vector<std::vector<Slice>> partition_slices(
    const std::vector<std::size_t>& counts, int ranks);

// Throws Error that names the option.
void check_options(const MixedPrecisionOptions& options);

// Throws Error that names the parameter.
void check_parameters(const std::vector<ParameterGroup>& groups,
                      const MixedPrecisionOptions& options);

// Returns name and options of the named scaler if there is one; otherwise, as
// Megatron's get_megatron_optimizer(), those of a constant loss scale or of the
// dynamic one for fp16. The name is empty if there is no scaler.
std::pair<std::string, ScalerOptions> scaler_choice(
    const MixedPrecisionOptions& options);
std::optional<LossScaler> choose_scaler(const MixedPrecisionOptions& options);

// FirstTouch leaves the elements of a vector uninitialised, so that the slaves
// that will use them write them first: Linux places a page on the NUMA node of
// the thread that writes it first.
template <class T>
struct FirstTouch : std::allocator<T> {
  template <class U>
  struct rebind {
    using other = FirstTouch<U>;
  };
  template <class U>
  void construct(U* element) noexcept {
    ::new (static_cast<void*>(element)) U;
  }
};
using FloatArray = std::vector<float, FirstTouch<float>>;

// MainSlice is a slice with the arrays of the optimizer. An array is empty if
// the model's own is used instead.
struct MainSlice {
  Slice slice;
  FloatArray master;    // of 16-bit weights
  FloatArray gradient;  // empty if unscaled in place
  FloatArray states[kMaxStates];
};

}  // namespace swamp::master

namespace swamp {

// Hidden, because otherwise Impl would be exported with its class.
struct [[gnu::visibility("hidden")]] MixedPrecisionOptimizer::Impl {
  Impl(std::vector<ParameterGroup> groups,
       const MixedPrecisionOptions& options);

  MixedPrecisionOptions options;
  Communicator& communicator;
  Communicator& model_communicator;             // alone() if there is none
  std::vector<ModelParameter> parameters;       // of all groups
  std::vector<std::size_t> group_of_parameter;  // in the order of parameters
  std::vector<master::InnerOptions> groups;
  std::optional<LossScaler> scaler;
  std::atomic<double> loss_scale{1.0};
  std::int64_t steps = 0;
  std::int64_t accumulated = 0;  // micro batches since the last step
  bool compared = false;         // the parameters, with those of other ranks
  std::string saturated;         // a parameter, since the last step

  std::vector<std::vector<master::Slice>>
      shards;                                  // by rank; one if not sharded
  std::vector<master::MainSlice> slices;       // this rank's
  std::vector<master::FloatArray> local_sums;  // micro batches, before sharding

  // The lists of every step, made once.
  std::vector<Tensor> model_gradients;  // copied or accumulated ...
  std::vector<Tensor> gradient_sums;    // ... into these
  std::vector<Tensor> main_gradients;   // of all slices
  std::vector<Tensor> masters;          // float32, of the 16-bit slices
  std::vector<Tensor> rounded_masters;  // the model's weights of the same
  std::vector<master::StepLists> step_lists;

  // Input of the last pass of a fused step.
  bool fused;
  StepScaling scaling;
  std::vector<double> squares;  // of the norm, by grain

  // Buffers for sending and receiving, kept so that a step allocates nothing.
  std::vector<std::size_t> rank_bytes;
  std::vector<double> all_squares;
  master::Buffer<std::byte> send_memory;
  master::Buffer<std::byte> receive_memory;
  std::vector<ConstBytes> send;
  std::vector<MutableBytes> receive;
  std::vector<Tensor> pieces;

  StepResult step();

  // The parts of a step.
  void accumulate(float divisor);
  void copy_model_grads_to_main_grads();
  bool unscale_and_check(StepResult & result);
  bool check_fused(OverflowReport & report);
  runtime::SlaveResult find_squares(float inv_scale);
  void find_saturated();
  double clip_grad_norm();
  std::uint64_t count_zeros();
  void inner_step();
  void copy_main_params_to_model_params();

  // Throws Error on all ranks unless all call the same function, with the same
  // options and, unless it is to be replaced, the same state. Does nothing on a
  // single rank. In sharding.cpp, as all that follows.
  enum class State { compared, replaced };
  void require_same_ranks(const char* call, State state = State::compared);

  // Returns the largest value of the ranks of both communicators.
  float max_of_ranks(float value) {
    return model_communicator.max(communicator.max(value));
  }

  // Only if sharded.
  Tensor local_gradient(std::size_t parameter);
  void reduce_scatter_gradients();
  int overflowing_rank(const OverflowReport& overflow);
  void gather_model_params();

  // Returns whole parameters from the slices of all ranks. `mine` are this
  // rank's arrays, in the order of its slices. Collective if sharded.
  std::vector<std::vector<float>> gather_slices(
      const std::vector<const float*>& mine) const;

  bool is_16_bit(std::size_t parameter) const {
    return parameters[parameter].data.dtype != kFloat32;
  }
  // Returns whether the model's gradient is the main gradient: it is only read,
  // or it is float32 and unscaled in place.
  bool uses_model_gradient(std::size_t parameter) const {
    return !options.shard && options.micro_batches == 1 &&
           (fused || parameters[parameter].gradient.dtype == kFloat32);
  }
  // Returns the part of a tensor that the slice covers.
  static Tensor slice_of(const Tensor& tensor, const master::Slice& slice);
  // Both have slice.count elements of float32, except that a fused step reads
  // the model's gradient.
  Tensor main_param(master::MainSlice & main) const;
  Tensor main_gradient(master::MainSlice & main) const;

  void event(const char* what) {
    if (options.observer != nullptr) options.observer->event(what);
  }

 private:
  void make_slices();
  void make_lists();
  void clear_arrays();
  master::StepLists& step_lists_of(const master::MainSlice& main);
};

}  // namespace swamp

#endif  // SWAMP_MASTER_OPTIM_MIXED_PRECISION_H_
