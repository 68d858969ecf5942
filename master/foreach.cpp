// The operations on lists of tensors: each function makes the arguments of one
// family of kernels, validates its lists and launches. A step of an optimizer
// is in two parts, prepare and run, because its caller may have to read the
// gradients in between. With 8-bit moments a unit is a scale block, 256
// elements. Stochastic rounding needs a key for each parameter, from the seed,
// the step and the parameter's number.
#include "swamp/foreach.h"

#include <algorithm>
#include <cmath>
#include <new>
#include <string>

#include "master/foreach.h"
#include "master/launch.h"
#include "master/text.h"

namespace swamp {

using master::OperandList;
using master::OperationTable;
using master::OptimizerLists;
using master::PreparedStep;
using master::Workspace;

void foreach_cast_(TensorList out, TensorList in, float divisor,
                   Machine* machine) {
  const slave::CastArgs args{divisor};
  const OperandList lists[] = {{"in", in}, {"out", out}};
  master::run_operations(lists, master::operations_of<KernelFamily::cast>(args),
                         machine);
}

void foreach_accumulate_(TensorList sum, TensorList in, float divisor,
                         Machine* machine) {
  const slave::AccumulateArgs args{divisor};
  const OperandList lists[] = {{"in", in}, {"sum", sum}};
  master::run_operations(
      lists, master::operations_of<KernelFamily::accumulate>(args), machine);
}

void foreach_lerp_(TensorList out, TensorList in, double weight,
                   Machine* machine) {
  // torch's lerp starts from the nearer end.
  const auto factor = static_cast<float>(weight);
  const bool is_small = std::abs(factor) < 0.5f;
  const slave::LerpArgs args{is_small ? factor : factor - 1,
                             is_small ? 0u : 1u};
  const OperandList lists[] = {{"in", in}, {"out", out}};
  master::run_operations(lists, master::operations_of<KernelFamily::lerp>(args),
                         machine);
}

void foreach_zero_(TensorList tensors, Machine* machine) {
  const slave::NoArgs args{};
  const OperandList list{"tensors", tensors};
  master::run_operations(&list, master::operations_of<KernelFamily::zero>(args),
                         machine);
}

double foreach_norm(TensorList tensors, float inv_scale, float* found_inf,
                    OverflowReport* report, Machine* machine) {
  double sum = 0;
  const runtime::SlaveResult result = master::run_norm(
      tensors, inv_scale, [&](double grain) { sum += grain; }, machine);
  if (found_inf != nullptr && result.flagged_elements != 0) *found_inf = 1.0f;
  if (report != nullptr) *report = master::overflow_report(result);
  return std::sqrt(sum);
}

std::uint64_t foreach_count_zeros(TensorList tensors, Machine* machine) {
  const slave::CountZerosArgs args{};
  const OperandList list{"tensors", tensors};
  return master::run_operations(
             &list, master::operations_of<KernelFamily::count_zeros>(args),
             machine)
      .flagged_elements;
}

void foreach_squares(TensorList tensors, float inv_scale, float* found_inf,
                     const std::function<void(double)>& visit,
                     Machine* machine) {
  const runtime::SlaveResult result =
      master::run_norm(tensors, inv_scale, visit, machine);
  if (found_inf != nullptr && result.flagged_elements != 0) *found_inf = 1.0f;
}

float clip_coefficient(double max_norm, double norm, ClipRule rule) noexcept {
  if (!(max_norm > 0)) return 1;
  const double added = rule == ClipRule::megatron ? 1e-6 : 0;
  const double coefficient = max_norm / (norm + added);
  return coefficient < 1 ? static_cast<float>(coefficient) : 1;
}

namespace {

slave::AdamArgs adam_args(const AdamStep& step, float inv_scale) {
  const auto steps = static_cast<double>(step.step);
  slave::AdamArgs args{};
  args.inv_scale = inv_scale;
  args.one_minus_beta1 = static_cast<float>(1 - step.beta1);
  args.beta2 = static_cast<float>(step.beta2);
  args.one_minus_beta2 = static_cast<float>(1 - step.beta2);
  args.step_size =
      static_cast<float>(step.lr / (1 - std::pow(step.beta1, steps)));
  args.bias_correction2_sqrt =
      static_cast<float>(std::sqrt(1 - std::pow(step.beta2, steps)));
  args.eps = static_cast<float>(step.eps);
  args.weight_decay =
      step.decoupled ? 0 : static_cast<float>(step.weight_decay);
  args.decay =
      step.decoupled ? static_cast<float>(1 - step.lr * step.weight_decay) : 1;
  return args;
}

slave::SgdArgs sgd_args(const SgdStep& step, float inv_scale) {
  slave::SgdArgs args{};
  args.inv_scale = inv_scale;
  args.lr = static_cast<float>(step.lr);
  args.momentum = static_cast<float>(step.momentum);
  args.one_minus_dampening = static_cast<float>(1 - step.dampening);
  args.weight_decay = static_cast<float>(step.weight_decay);
  args.nesterov = step.nesterov;
  args.first_step = step.first;
  return args;
}

// step_operations() returns the operations of a step with or without a model's
// weight.
template <KernelFamily kFamily, class Args>
OperationTable step_operations(const Args& args, bool with_model) {
  constexpr int kAll = slave::info_of(kFamily).operand_count;
  return with_model ? master::operations_of<kFamily>(args)
                    : master::operations_of<kFamily, kAll - 1>(args);
}

using BlockAt = slave::AdamBlockOperand;
constexpr char kLargestName[] = "max_exp_avg_sqs";

void require_empty(TensorList list, const char* name, const char* reason) {
  if (list.count() == 0) return;
  master::refuse(name, "a list of " + std::to_string(list.count()) + " tensors",
                 std::string("an empty one, ") + reason);
}

}  // namespace

OptimizerStep master::step_of(
    const std::variant<AdamOptions, SgdOptions>& options, std::int64_t step) {
  if (const auto* adam = std::get_if<AdamOptions>(&options)) {
    return AdamStep{*adam, step};
  }
  return SgdStep{std::get<SgdOptions>(options), step == 1};
}

void PreparedStep::prepare(const OptimizerLists& lists,
                           const OptimizerStep& step, float inv_scale,
                           Machine* machine) {
  std::visit([&](const auto& one) { prepare(lists, one, inv_scale, machine); },
             step);
}

void PreparedStep::prepare(const OptimizerLists& lists, const SgdStep& step,
                           float inv_scale, Machine* machine) {
  const bool with_momentum = step.momentum != 0;
  const TensorList buffers = lists.states[0];
  if (!with_momentum) {
    require_empty(buffers, lists.momentum_name, "because the momentum is 0");
  }
  require_empty(lists.states[1], "second_states",
                "because SGD has only momentum buffers");
  block_args_count_ = 0;
  sgd_args_ = sgd_args(step, inv_scale);
  sign_ = step.maximize ? -1.0f : 1.0f;
  const bool with_model = lists.model_params.count() != 0;
  operations_ =
      with_momentum
          ? step_operations<KernelFamily::sgd_momentum>(sgd_args_, with_model)
          : step_operations<KernelFamily::sgd>(sgd_args_, with_model);
  OperandList operand_lists[4] = {{"gradients", lists.gradients},
                                  {lists.params_name, lists.params}};
  int count = 2;
  if (with_momentum) operand_lists[count++] = {lists.momentum_name, buffers};
  if (with_model) operand_lists[count++] = {"model_params", lists.model_params};
  make_segments(operand_lists, machine);
}

void PreparedStep::prepare(const OptimizerLists& lists, const AdamStep& step,
                           float inv_scale, Machine* machine) {
  if (!is_step(step.step)) {
    master::refuse("step", std::to_string(step.step), kStepRange);
  }
  const bool with_blocks = step.block_moments != nullptr;
  const bool with_model = lists.model_params.count() != 0;
  const bool with_compensation = step.compensations.count() != 0;
  if (!step.amsgrad) {
    require_empty(lists.states[2], kLargestName, "because amsgrad is false");
  } else if (step.stochastic || with_compensation || with_blocks) {
    master::refuse("amsgrad", "true",
                   "false with stochastic rounding, compensations or 8-bit "
                   "moments");
  }
  if (with_compensation) {
    require_empty(lists.model_params, "model_params",
                  "because params have compensations");
  }
  if (with_blocks) {
    require_empty(lists.states[0], "exp_avgs", "because the moments are 8-bit");
    require_empty(lists.states[1], "exp_avg_sqs",
                  "because the moments are 8-bit");
  }
  block_args_count_ = 0;
  adam_args_ = adam_args(step, inv_scale);
  sign_ = step.maximize ? -1.0f : 1.0f;
  // The operands; those without a name are set below.
  OperandList operands[kMaxOperands] = {{"gradients", lists.gradients},
                                        {lists.params_name, lists.params}};
  using At = slave::AdamOperand<false>;
  int count = BlockAt::more;
  if (!with_blocks) {
    count = At::more;
    operands[At::m] = {"exp_avgs", lists.states[0]};
    operands[At::v] = {"exp_avg_sqs", lists.states[1]};
  }
  if (step.amsgrad) operands[count++] = {kLargestName, lists.states[2]};
  if (with_model) operands[count] = {"model_params", lists.model_params};
  if (with_compensation) {
    operands[count] = {"compensations", step.compensations};
  }
  using Family = KernelFamily;
  if (!with_blocks) {
    operations_ =
        with_compensation
            ? master::operations_of<Family::adam_kahan>(adam_args_)
        : step.stochastic
            ? step_operations<Family::adam_stochastic>(adam_args_, with_model)
        : step.amsgrad
            ? step_operations<Family::adam_amsgrad>(adam_args_, with_model)
            : step_operations<Family::adam>(adam_args_, with_model);
    make_segments(operands, machine);
    if (with_compensation || step.stochastic) set_keys(step);
    return;
  }
  const bool with_key = !with_compensation && !with_model &&
                        lists.params.count() != 0 &&
                        lists.params.data() != nullptr &&
                        scalar_type_index(lists.params.data()[0]) != kFloat32;
  const slave::AdamBlockArgs args{};  // its size only; see make_blocks()
  operations_ =
      with_compensation ? master::operations_of<Family::adam_8bit_kahan>(args)
      : with_key ? master::operations_of<Family::adam_8bit_stochastic>(args)
                 : step_operations<Family::adam_8bit>(args, with_model);
  // Before machine_ is set: the destructor needs the workspace.
  Workspace& workspace = Workspace::of_this_thread();
  machine_ = &master::impl_of(machine);
  list_ = master::make_segments(*machine_, operands, operations_, false,
                                workspace.segments());
  if (with_key && !step.stochastic) {
    master::refuse("stochastic", "false",
                   "true, because params of 16 bits with 8-bit moments have "
                   "neither model_params nor compensations");
  }
  make_blocks(step, with_key);
}

namespace {

// rounding_key() is the key of tensor i from its element `first` on.
slave::RoundingKey rounding_key(const AdamStep& step, std::size_t i,
                                std::size_t first = 0) noexcept {
  const std::uint64_t id = step.ids != nullptr ? step.ids[i] : i;
  if (step.first_elements != nullptr) first += step.first_elements[i];
  using slave::mixed;
  const std::uint64_t key = mixed(mixed(mixed(step.seed + slave::kMixStride) +
                                        static_cast<std::uint64_t>(step.step)) +
                                  id);
  return {static_cast<std::uint32_t>(key) + static_cast<std::uint32_t>(first),
          static_cast<std::uint32_t>(key >> 32)};
}

constexpr std::size_t kBlock = slave::kBlockColumns;
static_assert(kBlock == kMomentBlock);

// require_moments() throws unless every tensor with elements has moments.
void require_moments(const AdamStep& step,
                     const runtime::SegmentTable& tensors) {
  for (std::size_t i = 0; i < tensors.count; ++i) {
    if (tensors[i].count == 0) continue;
    const BlockMoments& moments = step.block_moments[i];
    const auto bits = reinterpret_cast<std::uintptr_t>(moments.absmax);
    if (moments.exp_avg != nullptr && moments.exp_avg_sq != nullptr &&
        bits != 0 && bits % alignof(float) == 0) {
      continue;
    }
    master::refuse("block_moments[" + std::to_string(i) + "]",
                   bits % alignof(float) != 0 ? "a misaligned absmax" : "null",
                   "the addresses of " + std::to_string(tensors[i].count) +
                       " codes, twice, and of two floats for each block of " +
                       std::to_string(kBlock));
  }
}

std::byte* address(void* data) { return static_cast<std::byte*>(data); }

}  // namespace

void PreparedStep::set_keys(const AdamStep& step) {
  Workspace& workspace = Workspace::of_this_thread();
  const std::size_t count = list_.table.count;
  auto* keys = reinterpret_cast<slave::RoundingKey*>(
      workspace.prepared_values().reserve(count * sizeof(slave::RoundingKey)));
  const int last = operations_.group->operand_count - 1;
  std::byte* at = workspace.prepared_segments().data();
  for (std::size_t i = 0; i < count; ++i, at += list_.table.stride) {
    keys[i] = rounding_key(step, i);
    reinterpret_cast<Segment*>(at)->data()[last] = address(&keys[i]);
  }
}

// make_blocks() makes the segment table from the table of whole tensors: the
// whole blocks of a tensor are a segment, whose units are blocks, and the rest
// of it is a segment of one shorter block. There is an operation for each
// kernel and each length of a block.
void PreparedStep::make_blocks(const AdamStep& step, bool with_key) {
  const runtime::SegmentTable tensors = list_.table;
  const int operand_count = operations_.group->operand_count;
  const Operation* const kernels = operations_.operations;
  require_moments(step, tensors);
  // The number of each operation, by kernel and length.
  constexpr std::uint16_t kNone = 0xffff;
  std::uint16_t numbers[slave::kMaxFormats][kBlock + 1];
  std::fill(&numbers[0][0], &numbers[0][0] + sizeof numbers / sizeof kNone,
            kNone);
  std::size_t segments = 0;
  std::size_t operation_count = 0;
  const auto count = [&](std::size_t kernel, std::size_t columns) {
    ++segments;
    std::uint16_t& number = numbers[kernel][columns];
    if (number == kNone) number = static_cast<std::uint16_t>(operation_count++);
  };
  for (std::size_t i = 0; i < tensors.count; ++i) {
    const auto kernel =
        static_cast<std::size_t>(tensors[i].operation - kernels);
    if (tensors[i].count >= kBlock) count(kernel, kBlock);
    if (tensors[i].count % kBlock != 0) {
      count(kernel, tensors[i].count % kBlock);
    }
  }
  Workspace& workspace = Workspace::of_this_thread();
  std::byte* const values = workspace.prepared_values().reserve(
      operation_count * (sizeof(Operation) + sizeof(slave::AdamBlockArgs)) +
      segments * sizeof(slave::RoundingKey));
  auto* const operations = reinterpret_cast<Operation*>(values);
  block_args_ =
      reinterpret_cast<slave::AdamBlockArgs*>(operations + operation_count);
  block_args_count_ = operation_count;
  auto* key =
      reinterpret_cast<slave::RoundingKey*>(block_args_ + operation_count);
  for (std::size_t k = 0; k < std::size_t(operations_.group->count); ++k) {
    for (std::size_t columns = 1; columns <= kBlock; ++columns) {
      const std::uint16_t number = numbers[k][columns];
      if (number == kNone) continue;
      block_args_[number] = {adam_args_, static_cast<std::uint32_t>(columns),
                             step.float8_moments ? 1u : 0u};
      new (&operations[number])
          Operation(slave::kKernels[operations_.group->ids[k]],
                    &block_args_[number], columns);
      operations[number].tile_step = 1;  // any number of blocks
    }
  }
  const std::size_t stride = segment_bytes(operand_count);
  std::byte* at = workspace.prepared_segments().reserve(segments * stride);
  list_ = {};
  list_.table = {at, stride, segments, operations, operation_count};
  list_.grains.block_units = kBlockElements / kBlock;
  for (std::size_t i = 0; i < tensors.count; ++i) {
    const Segment& tensor = tensors[i];
    const auto kernel = static_cast<std::size_t>(tensor.operation - kernels);
    const std::size_t whole = tensor.count / kBlock;
    const auto add = [&](std::size_t columns, std::size_t units,
                         std::size_t first) {
      if (units == 0 || columns == 0) return;
      const Operation& operation = operations[numbers[kernel][columns]];
      auto* segment = new (at) Segment{&operation, units};
      std::byte** data = segment->data();
      const BlockMoments& moments = step.block_moments[i];
      for (const int s : {BlockAt::gradient, BlockAt::weight, BlockAt::more}) {
        if (s >= operand_count || (s == BlockAt::more && with_key)) continue;
        const std::size_t bytes =
            slave::kKernels[operation.kernel].operands[s].bytes;
        data[s] = tensor.data()[s] + first * bytes;
      }
      data[BlockAt::m] = address(moments.exp_avg + first);
      data[BlockAt::v] = address(moments.exp_avg_sq + first);
      data[BlockAt::absmax] = address(moments.absmax + first / kBlock * 2);
      if (with_key) {
        *key = rounding_key(step, i, first);
        data[BlockAt::more] = address(key++);
      }
      list_.traffic_bytes += units * operation.traffic_bytes;
      at += stride;
    };
    add(kBlock, whole, 0);
    add(tensor.count % kBlock, 1, whole * kBlock);
  }
}

void PreparedStep::make_segments(const OperandList* lists, Machine* machine) {
  Workspace& workspace = Workspace::of_this_thread();
  machine_ = &master::impl_of(machine);
  list_ = master::make_segments(*machine_, lists, operations_, false,
                                workspace.prepared_segments());
}

PreparedStep::~PreparedStep() {
  if (machine_ == nullptr) return;
  Workspace& workspace = Workspace::of_this_thread();
  workspace.trim();
  workspace.trim_prepared();
}

void PreparedStep::run(float clip_coefficient) {
  adam_args_.clip_coefficient = sign_ * clip_coefficient;
  sgd_args_.clip_coefficient = sign_ * clip_coefficient;
  for (std::size_t i = 0; i < block_args_count_; ++i) {
    block_args_[i].adam.clip_coefficient = sign_ * clip_coefficient;
  }
  Workspace::of_this_thread().run(*machine_, list_);
}

void foreach_step_(TensorList params, TensorList gradients,
                   TensorList first_states, TensorList second_states,
                   TensorList model_params, const OptimizerStep& step,
                   const StepScaling& scaling, Machine* machine) {
  const auto* adam = std::get_if<AdamStep>(&step);
  PreparedStep prepared;
  prepared.prepare({params,
                    gradients,
                    {first_states, second_states,
                     adam != nullptr ? adam->max_exp_avg_sqs : TensorList()},
                    model_params},
                   step, scaling.inv_scale, machine);
  prepared.run(scaling.clip_coefficient);
}

void foreach_sgd_(TensorList params, TensorList gradients,
                  TensorList momentum_buffers, TensorList model_params,
                  const SgdStep& step, const StepScaling& scaling,
                  Machine* machine) {
  foreach_step_(params, gradients, momentum_buffers, {}, model_params, step,
                scaling, machine);
}

void foreach_adam_(TensorList params, TensorList gradients, TensorList exp_avgs,
                   TensorList exp_avg_sqs, TensorList model_params,
                   const AdamStep& step, const StepScaling& scaling,
                   Machine* machine) {
  foreach_step_(params, gradients, exp_avgs, exp_avg_sqs, model_params, step,
                scaling, machine);
}

}  // namespace swamp
