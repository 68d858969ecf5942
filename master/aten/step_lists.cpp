// torch.classes.swamp.StepLists: the parameters and the state of an optimizer,
// collected once, for the steps of swamp_torch's optimizers.
#include <ATen/core/Dict.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/Scalar.h>
#include <torch/custom_class.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "master/aten/checks.h"
#include "master/aten/step.h"
#include "master/aten/tensor.h"
#include "swamp/aten.h"

namespace swamp::aten {
namespace {

using Tensors = std::vector<at::Tensor>;

// Mark is what shows that something else wrote a tensor.
struct Mark {
  std::int64_t version;
  std::int64_t address;
};

Mark mark_of(const at::Tensor& tensor) {
  // Tensors of torch.inference_mode() have no version.
  const std::int64_t version =
      tensor.is_inference() ? 0 : static_cast<std::int64_t>(tensor._version());
  return {version, static_cast<std::int64_t>(address_of(tensor))};
}

// prefetch_grads() prefetches what leads to the gradients of the parameters
// that follow parameter i.
void prefetch_grads(const Tensors& params, std::size_t i) {
  if (i + kPrefetchAhead < params.size()) prefetch(params[i + kPrefetchAhead]);
  if (i + kPrefetchAhead / 2 < params.size()) {
    const auto* at = reinterpret_cast<const std::byte*>(
        params[i + kPrefetchAhead / 2].unsafeGetTensorImpl()->autograd_meta());
    __builtin_prefetch(at);
    __builtin_prefetch(at + 64);
  }
}

// prefetch_step() prefetches what leads to the values of the steps that follow
// step i.
void prefetch_step(const Tensors& steps, std::size_t i) {
  constexpr std::size_t kThird = kPrefetchAhead / 3;
  if (i + 3 * kThird < steps.size()) prefetch(steps[i + 3 * kThird]);
  if (i + 2 * kThird < steps.size()) prefetch_storage(steps[i + 2 * kThird]);
  if (i + kThird < steps.size()) {
    __builtin_prefetch(
        reinterpret_cast<const void*>(address_of(steps[i + kThird])));
  }
}

bool is_step(const at::Tensor& tensor) {
  return tensor.is_cpu() && tensor.layout() == at::kStrided &&
         tensor.scalar_type() == at::kFloat && tensor.numel() == 1 &&
         !is_lazy(tensor);
}

// StepOptions are the options of a group by their names in torch.optim, but
// beta1 and beta2 for betas.
using StepOptions = c10::Dict<std::string, at::Scalar>;

template <class Number = double>
Number option(const StepOptions& options, const char* name) {
  const auto found = options.find(name);
  TORCH_CHECK(found != options.end(), "options: got none named ", name,
              ", expected a number");
  return found->value().to<Number>();
}

// Bucket is the parameters that are stepped by one call.
struct Bucket {
  Tensors params;   // the model's, whose gradients are used
  Tensors masters;  // of 16-bit parameters; otherwise empty
  std::vector<Tensors> states;
  Tensors steps;            // what each state counts, equal; or empty
  std::vector<Mark> marks;  // of 16-bit parameters, after the last step
  Tensors grads;            // only during a step
  StepStorage storage;
  OptimizerStep rule;
  double max_norm = 0;
  ClipRule clip_rule = ClipRule::megatron;
  // For random bits, if `storage.compact`.
  std::vector<std::uint64_t> ids, first_elements;
};

class StepListsObject final : public torch::CustomClassHolder {
 public:
  // add() adds a bucket; masters is empty if the parameters are float32. Only
  // the dtypes of the steps are checked here.
  void add(Tensors params, Tensors masters, std::vector<Tensors> states,
           Tensors steps) {
    for (const at::Tensor& step : steps) require_scalars({{step, "step"}});
    Bucket bucket;
    bucket.params = std::move(params);
    bucket.masters = std::move(masters);
    bucket.states = std::move(states);
    bucket.steps = std::move(steps);
    bucket.marks.resize(bucket.masters.size(), Mark{-1, 0});
    buckets_.push_back(std::move(bucket));
  }

  // set_storage() makes a bucket of Adam one that takes less memory. Its last
  // lists of states are the absmax of 8-bit moments and the compensations.
  void set_storage(std::int64_t index, bool kahan, bool is_8_bit,
                   bool is_float8, const std::vector<std::int64_t>& ids,
                   const std::vector<std::int64_t>& first_elements) {
    Bucket& bucket = at(index);
    const std::size_t count = bucket.params.size();
    TORCH_CHECK(ids.size() == count && first_elements.size() == count,
                "ids, first_elements: got ", ids.size(), " and ",
                first_elements.size(), " numbers, expected ", count);
    bucket.storage = {true, kahan, is_8_bit, is_float8};
    bucket.ids.assign(ids.begin(), ids.end());
    bucket.first_elements.assign(first_elements.begin(), first_elements.end());
    if (kahan) bucket.marks.resize(ids.size(), Mark{-1, 0});
  }

  // set_absent() sets the parameters that had no gradient.
  void set_absent(Tensors params) { absent_ = std::move(params); }

  // same_grads() returns whether exactly the buckets' parameters have
  // gradients, all of them strided.
  bool same_grads() const {
    for (const at::Tensor& param : absent_) {
      if (param.grad().defined()) return false;
    }
    for (const Bucket& bucket : buckets_) {
      for (std::size_t i = 0; i < bucket.params.size(); ++i) {
        prefetch_grads(bucket.params, i);
        const at::Tensor& grad = bucket.params[i].grad();
        if (!grad.defined() || grad.layout() != at::kStrided) return false;
      }
    }
    return true;
  }

  // same_steps() returns whether the steps of each bucket are still equal.
  bool same_steps() const {
    for (const Bucket& bucket : buckets_) {
      for (std::size_t i = 0; i < bucket.steps.size(); ++i) {
        prefetch_step(bucket.steps, i);
        if (!is_step(bucket.steps[i]) ||
            load<std::uint32_t>(const_data(bucket.steps[i])) !=
                load<std::uint32_t>(const_data(bucket.steps[0]))) {
          return false;
        }
      }
    }
    return true;
  }

  // grad_norm() returns the norm of all gradients.
  at::Tensor grad_norm(const at::Tensor& inv_scale) {
    Tensors grads;
    for (const Bucket& bucket : buckets_) {
      for (const at::Tensor& param : bucket.params) {
        grads.push_back(param.grad());
      }
    }
    return grad_norm_and_check(
        grads, at::zeros({}, at::TensorOptions(at::kFloat).device(at::kCPU)),
        inv_scale);
  }

  // squares() is grad_squares_and_check(), for any gradients.
  std::vector<double> squares(Tensors grads, at::Tensor found_inf,
                              const at::Tensor& inv_scale) {
    return grad_squares_and_check(grads, std::move(found_inf), inv_scale);
  }

  // set_options() sets the rule of a bucket, "adam" or "sgd", and its options.
  void set_options(std::int64_t index, const std::string& rule,
                   const StepOptions& options) {
    Bucket& bucket = at(index);
    const auto number = [&](const char* name) { return option(options, name); };
    const auto flag = [&](const char* name) { return number(name) != 0; };
    bucket.max_norm = number("max_norm");
    bucket.clip_rule =
        flag("mindspore") ? ClipRule::mindspore : ClipRule::megatron;
    if (rule == "sgd") {
      bucket.rule =
          SgdStep{{number("lr"), number("momentum"), number("dampening"),
                   number("weight_decay"), flag("nesterov"), flag("maximize")},
                  flag("first")};
      return;
    }
    TORCH_CHECK(rule == "adam", "rule: got ", rule, ", expected adam or sgd");
    AdamStep adam{{number("lr"), number("beta1"), number("beta2"),
                   number("eps"), number("weight_decay"),
                   flag("decoupled_weight_decay"), flag("amsgrad"),
                   flag("maximize")}};
    adam.seed =
        static_cast<std::uint64_t>(option<std::int64_t>(options, "seed"));
    bucket.rule = adam;
  }

  // step() takes a step with bucket `index`, and counts it in its steps. If
  // `end` is not negative, only the elements from `begin`, a multiple of
  // kMomentBlock, to `end` of the bucket's only parameter are stepped, whose
  // tensors must be contiguous; the step is counted with the last element, and
  // grad_norm must be given if gradients are clipped.
  void step(std::int64_t index, const at::Tensor& inv_scale,
            const std::optional<at::Tensor>& grad_norm, std::int64_t begin,
            std::int64_t end) {
    Bucket& bucket = at(index);
    TORCH_CHECK(end < 0 || (bucket.params.size() == 1 && begin >= 0 &&
                            begin % kMomentBlock == 0 && begin < end &&
                            end <= bucket.params[0].numel()),
                "begin, end: got ", begin, " and ", end,
                ", expected a range of the elements of one parameter, from a "
                "multiple of ",
                kMomentBlock);
    const auto* sgd = std::get_if<SgdStep>(&bucket.rule);
    if (sgd != nullptr) {
      take(bucket, sgd_lists(sgd->momentum != 0), inv_scale, grad_norm, begin,
           end);
      return;
    }
    const Tensors& steps = bucket.steps;
    TORCH_CHECK(!steps.empty(), "steps: got none, expected one a parameter");
    auto& adam = std::get<AdamStep>(bucket.rule);
    adam.step = next_step(steps[0]);
    take(bucket,
         bucket.storage.compact ? compact_adam_lists(bucket.storage)
                                : adam_lists(adam.amsgrad),
         inv_scale, grad_norm, begin, end);
    if (end >= 0 && end < bucket.params[0].numel()) return;
    constexpr std::size_t kTogether = 16;
    for (std::size_t i = 0; i < steps.size(); ++i) {
      prefetch_step(steps, i);
      store<float>(mutable_data(steps[i]), static_cast<float>(adam.step));
      const std::size_t written = i % kTogether + 1;
      if (written == kTogether || i + 1 == steps.size()) {
        count_writes(at::TensorList(steps).slice(i + 1 - written, written));
      }
    }
  }

  // written() returns the indices of the 16-bit parameters of a bucket that
  // were written since their mark.
  std::vector<std::int64_t> written(std::int64_t index) const {
    const Bucket& bucket = at(index);
    std::vector<std::int64_t> result;
    for (std::size_t i = 0; i < bucket.marks.size(); ++i) {
      const Mark now = mark_of(bucket.params[i]);
      const Mark& before = bucket.marks[i];
      if (now.version == before.version && now.address == before.address) {
        continue;
      }
      result.push_back(static_cast<std::int64_t>(i));
    }
    return result;
  }

  // mark() marks the 16-bit parameters of all buckets.
  void mark() {
    for (Bucket& bucket : buckets_) {
      for (std::size_t i = 0; i < bucket.marks.size(); ++i) {
        bucket.marks[i] = mark_of(bucket.params[i]);
      }
    }
  }

  // marks() returns version and address for each 16-bit parameter of a bucket.
  std::vector<std::int64_t> marks(std::int64_t index) const {
    std::vector<std::int64_t> result;
    for (const Mark& one : at(index).marks) {
      result.push_back(one.version);
      result.push_back(one.address);
    }
    return result;
  }

  // set_marks() takes a result of marks().
  void set_marks(std::int64_t index, const std::vector<std::int64_t>& marks) {
    std::vector<Mark>& own = at(index).marks;
    TORCH_CHECK(marks.size() == 2 * own.size(), "marks: got ", marks.size(),
                " numbers, expected ", 2 * own.size());
    for (std::size_t i = 0; i < own.size(); ++i) {
      own[i] = {marks[2 * i], marks[2 * i + 1]};
    }
  }

 private:
  const Bucket& at(std::int64_t index) const {
    TORCH_CHECK(index >= 0 && static_cast<std::size_t>(index) < buckets_.size(),
                "index: got ", index, ", expected one of ", buckets_.size(),
                " buckets");
    return buckets_[static_cast<std::size_t>(index)];
  }
  Bucket& at(std::int64_t index) {
    return const_cast<Bucket&>(std::as_const(*this).at(index));
  }

  static void take(Bucket& bucket, StepLists lists, const at::Tensor& inv_scale,
                   const std::optional<at::Tensor>& grad_norm,
                   std::int64_t begin, std::int64_t end) {
    require_scalars({{inv_scale, "inv_scale"}});
    const at::Tensor norm = grad_norm.value_or(at::Tensor());
    if (norm.defined()) {
      require_scalars({{norm, "grad_norm", kFloatOrDouble}});
    }
    const bool kahan = bucket.storage.kahan;
    const std::size_t states = lists.state_count + (kahan ? 1 : 0);
    TORCH_CHECK(bucket.states.size() == states, "states: got ",
                bucket.states.size(), " lists, expected ", states);
    const GradsOfStep grads(bucket);
    const bool is_16_bit = !bucket.masters.empty();
    lists.all[0] = is_16_bit ? bucket.masters : bucket.params;
    lists.all[kStepGrads] = bucket.grads;
    for (std::size_t s = 0; s < lists.state_count; ++s) {
      lists.all[kStepStates + s] = bucket.states[s];
    }
    if (is_16_bit) lists.all[kStepOutput] = bucket.params;
    if (kahan) lists.all[kStepOutput] = bucket.states.back();
    if (bucket.storage.compact) {
      lists.ids = bucket.ids.data();
      lists.first_elements = bucket.first_elements.data();
    }
    std::array<at::Tensor, kStepListCount> ranges;
    std::uint64_t first_element = 0;
    if (end >= 0) {
      require_step_lists(lists);  // because slice() clamps its bounds
      for (std::size_t l = 0; l < kStepListCount; ++l) {
        if (lists.all[l].empty()) continue;
        const auto place = [&](std::int64_t element) {
          return is_absmax(bucket.storage, l) ? absmax_count(element) : element;
        };
        ranges[l] =
            lists.all[l][0].view({-1}).slice(0, place(begin), place(end));
        lists.all[l] = ranges[l];
      }
      if (bucket.storage.compact) {
        first_element =
            bucket.first_elements[0] + static_cast<std::uint64_t>(begin);
        lists.first_elements = &first_element;
      }
    }
    {
      // Copies to tensors that the kernels cannot write are counted below.
      const at::AutoDispatchBelowADInplaceOrView guard;
      take_step(lists, bucket.rule, load<float>(const_data(inv_scale)), norm,
                bucket.max_norm, bucket.clip_rule);
    }
    for (std::size_t l = 0; l < kStepListCount; ++l) {
      if (l != kStepGrads) count_writes(lists.all[l]);
    }
  }

  // GradsOfStep holds the gradients for as long as it lives.
  class GradsOfStep {
   public:
    explicit GradsOfStep(Bucket& bucket) : grads_(bucket.grads) {
      grads_.reserve(bucket.params.size());
      for (std::size_t i = 0; i < bucket.params.size(); ++i) {
        prefetch_grads(bucket.params, i);
        const at::Tensor& grad = bucket.params[i].grad();
        TORCH_CHECK(grad.defined(), "grads[", grads_.size(),
                    "]: got None, expected a Tensor");
        grads_.push_back(grad);
      }
    }
    ~GradsOfStep() { grads_.clear(); }
    GradsOfStep(const GradsOfStep&) = delete;
    GradsOfStep& operator=(const GradsOfStep&) = delete;

   private:
    Tensors& grads_;
  };

  std::vector<Bucket> buckets_;
  Tensors absent_;
};

}  // namespace

void register_step_lists(torch::Library& library) {
  library.class_<StepListsObject>("StepLists")
      .def(torch::init<>())
      .def("add", &StepListsObject::add)
      .def("set_storage", &StepListsObject::set_storage)
      .def("set_absent", &StepListsObject::set_absent)
      .def("same_grads", &StepListsObject::same_grads)
      .def("same_steps", &StepListsObject::same_steps)
      .def("grad_norm", &StepListsObject::grad_norm)
      .def("squares", &StepListsObject::squares)
      .def("set_options", &StepListsObject::set_options)
      .def("step", &StepListsObject::step)
      .def("written", &StepListsObject::written)
      .def("mark", &StepListsObject::mark)
      .def("marks", &StepListsObject::marks)
      .def("set_marks", &StepListsObject::set_marks);
}

}  // namespace swamp::aten
