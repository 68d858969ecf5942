// The inside of a MixedPrecisionOptimizer.
#ifndef SWAMP_MASTER_OPTIM_MIXED_PRECISION_H_
#define SWAMP_MASTER_OPTIM_MIXED_PRECISION_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
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

// check_inner_options() throws Error that names option and value; `group` is ""
// or "groups[1].".
void check_inner_options(const InnerOptions& options, const std::string& group);

// group_options() is the options of a group: `options` but for what it says
// itself.
InnerOptions group_options(const InnerOptions& options,
                           const ParameterGroup& group);

double& lr_of(InnerOptions& options);

// option_fields() names the numbers of the options, for state dicts.
std::vector<std::pair<const char*, double*>> option_fields(
    InnerOptions& options);

// option_flag() is the one that is no number, by torch's name.
std::pair<const char*, bool*> option_flag(InnerOptions& options);

// state_names() are the arrays beside a weight, in the order of StepLists.
std::vector<const char*> state_names(const InnerOptions& options);

// adam_step_of() and sgd_step_of() are the numbers of step `step`, counted
// from 1.
AdamStep adam_step_of(const AdamOptions& options, std::int64_t step);
SgdStep sgd_step_of(const SgdOptions& options, std::int64_t step);

// StepLists is what a step of one group moves, tensor by tensor; params and
// states are float32.
struct StepLists {
  std::size_t group;
  std::vector<Tensor> params;
  std::vector<Tensor> gradients;
  std::vector<Tensor> states[2];
  std::vector<Tensor> model_params;  // 16-bit, written too; or empty
};

// inner_step() takes the step number `step`, counted from 1, of the states.
void inner_step(const InnerOptions& options, const StepLists& lists,
                std::int64_t step, const StepScaling& scaling,
                Machine* machine);

// Slice is some elements of a parameter that follow each other.
struct Slice {
  std::size_t parameter;  // in the order of all groups
  std::size_t begin;
  std::size_t count;
};

// whole_slices() is every parameter, whole; `counts` are their elements.
std::vector<Slice> whole_slices(const std::vector<std::size_t>& counts);

// cut_slices() cuts the parameters into as many shards as there are ranks, of
// nearly equal size, without padding. A cut lies at an edge of the list's
// grains, and no tensor's end is cut off that is smaller than a block: so the
// grains of the shards are those of the list, and a norm adds up the same
// numbers in the same order on any number of ranks (as long as a grain is one
// block: up to kMaxGrains of them).
std::vector<std::vector<Slice>> cut_slices(
    const std::vector<std::size_t>& counts, int ranks);

// check_options() throws Error that names the option.
void check_options(const MixedPrecisionOptions& options);

// check_parameters() throws Error that names the parameter.
void check_parameters(const std::vector<ParameterGroup>& groups,
                      const MixedPrecisionOptions& options);

// choose_scaler() is Megatron's get_megatron_optimizer(): a constant loss scale
// first, then the dynamic one of fp16, else none; before all, a named one.
std::optional<LossScaler> choose_scaler(const MixedPrecisionOptions& options);

// MainSlice is a slice with what the optimizer keeps of it. An array is empty
// where the model's own is used in its place.
struct MainSlice {
  Slice slice;
  std::vector<float> master;    // of 16-bit weights
  std::vector<float> gradient;  // of what is not unscaled in place
  std::vector<float> states[2];
};

}  // namespace swamp::master

namespace swamp {

// Impl would be exported with the class that it is the inside of.
struct [[gnu::visibility("hidden")]] MixedPrecisionOptimizer::Impl {
  Impl(std::vector<ParameterGroup> groups,
       const MixedPrecisionOptions& options);

  MixedPrecisionOptions options;
  Communicator& communicator;
  std::vector<ModelParameter> parameters;       // of all groups
  std::vector<std::size_t> group_of_parameter;  // in the order of parameters
  std::vector<master::InnerOptions> groups;
  std::optional<LossScaler> scaler;
  std::atomic<double> loss_scale{1.0};
  std::int64_t steps = 0;
  std::int64_t accumulated = 0;  // micro batches since the last step

  std::vector<std::vector<master::Slice>>
      shards;                                  // by rank; one if not sharded
  std::vector<master::MainSlice> slices;       // this rank's
  std::vector<std::vector<float>> local_sums;  // micro batches, before sharding

  // The lists of every step, made once.
  std::vector<Tensor> model_gradients;  // what is copied or accumulated ...
  std::vector<Tensor> gradient_sums;    // ... into these
  std::vector<Tensor> main_gradients;   // of all slices
  std::vector<Tensor> masters;          // float32, of the 16-bit slices
  std::vector<Tensor> rounded_masters;  // the model's weights of the same
  std::vector<master::StepLists> step_lists;

  // What a fused step leaves to its last pass.
  bool fused;
  StepScaling scaling;
  std::vector<double> squares;  // of the norm, by grain

  // What a step sends and receives, kept so that it allocates nothing.
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
  double clip_grad_norm();
  std::uint64_t count_zeros();
  void inner_step();
  void copy_main_params_to_model_params();

  // What only a sharded one does. sharding.cpp
  Tensor local_gradient(std::size_t parameter);
  void reduce_scatter_gradients();
  int overflowing_rank(const OverflowReport& overflow);
  void gather_model_params();

  // gather_slices() makes whole parameters of the ranks' slices: `mine` are
  // this rank's arrays, in the order of its slices. Collective when sharded.
  std::vector<std::vector<float>> gather_slices(
      const std::vector<const float*>& mine) const;

  bool is_16_bit(std::size_t parameter) const {
    return parameters[parameter].data.dtype != kFloat32;
  }
  // uses_model_gradient() says whether the model's gradient is the main one:
  // it is only read, or float32 and unscaled in place.
  bool uses_model_gradient(std::size_t parameter) const {
    return !options.shard && options.micro_batches == 1 &&
           (fused || parameters[parameter].gradient.dtype == kFloat32);
  }
  // slice_of() is a tensor's part that the slice covers.
  static Tensor slice_of(const Tensor& tensor, const master::Slice& slice);
  // main_param() is float32, main_gradient() too but where a fused step reads
  // the model's; both have slice.count elements.
  Tensor main_param(master::MainSlice & main) const;
  Tensor main_gradient(master::MainSlice & main) const;

  void event(const char* what) {
    if (options.observer != nullptr) options.observer->event(what);
  }

 private:
  void make_slices();
  void make_lists();
  master::StepLists& step_lists_of(const master::MainSlice& main);
};

}  // namespace swamp

#endif  // SWAMP_MASTER_OPTIM_MIXED_PRECISION_H_
