// Kernels in front of PyTorch's own (the key BackendSelect, which these
// operators do not use), of operators that swamp does not replace:
// - With `half_precision` some of 16 bits are PyTorch's float32 kernel, whose
//   results are rounded once, its kernel of integers, a table of its results,
//   or swamp's extremes: its 16-bit kernels are slower.
// - With `reproducible`, an operator whose bits depend on the number of threads
//   runs on one thread if that makes its bits the same everywhere. Otherwise,
//   and if they depend on the CPU, it warns once, or throws.
//
// Fake, functional and batched tensors, and modes, have keys before
// BackendSelect, so only operators that compute are seen here.
#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/TypeProperties.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/kaiser_window_compositeexplicitautograd_dispatch.h>
#include <c10/core/DefaultDtype.h>
#include <c10/util/Exception.h>
#include <omp.h>
#include <torch/library.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "master/aten/checks.h"
#include "master/aten/number_table.h"
#include "master/aten/overrides.h"
#include "master/aten/tensor.h"
#include "master/aten/unreproducible_table.h"
#include "swamp/aten.h"
#include "swamp/channel_norm.h"

namespace swamp::aten {
namespace unreproducible {
namespace {

constexpr unsigned bit_of(at::ScalarType type) {
  return type == at::kFloat                ? kFloat
         : type == at::kHalf               ? kHalf
         : type == at::kBFloat16           ? kBfloat16
         : type == at::kDouble             ? kDouble
         : c10::isComplexType(type)        ? kComplex
         : c10::isIntegralType(type, true) ? kInteger
                                           : kOther;
}

// What enable() chose; and how often, because each choice warns again.
std::atomic<std::int64_t> action{kWarn};
std::atomic<std::int64_t> choices{1};

// OneThread makes this thread run PyTorch's loops alone. PyTorch's own
// at::set_num_threads() would also reach threads that start meanwhile.
class OneThread {
 public:
  OneThread() : before_(at::get_num_threads()) { omp_set_num_threads(1); }
  ~OneThread() { omp_set_num_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

// narrow_type() returns the 16-bit dtype that all floating-point tensors of a
// call have, or nothing if the call can't be computed in float32, or is small.
// It sets `largest` to the elements of the largest one.
std::optional<at::ScalarType> narrow_type(const c10::FunctionSchema& schema,
                                          const torch::jit::Stack& stack,
                                          std::int64_t& largest) {
  std::optional<at::ScalarType> found;
  largest = 0;
  for (std::size_t i = stack.size() - schema.arguments().size();
       i < stack.size(); ++i) {
    if (!stack[i].isTensor()) continue;
    const at::Tensor& x = stack[i].toTensor();
    if (!x.defined()) continue;
    const at::ScalarType type = x.scalar_type();
    if (!is_plain(x, type)) return {};
    if (at::isIntegralType(type, true)) continue;
    if (!is_half(type) || found.value_or(type) != type) return {};
    found = type;
    largest = std::max(largest, x.numel());
  }
  return largest < kLeastElements ? std::nullopt : found;
}

// Elements of a slice, whose float32 copy stays in a CPU's caches. Tensors
// without slices, but for kWhole, have at most kMostElements.
constexpr std::int64_t kSliceElements = std::int64_t{1} << 19;

// sliced_dimension() returns the dimension of the first tensor of a call whose
// slices have results of their own, which follow each other; or nothing.
std::optional<std::int64_t> sliced_dimension(Copies copies,
                                             const c10::IValue* arguments) {
  const at::Tensor& x = arguments[0].toTensor();
  if (!x.is_contiguous() || x.numel() <= 2 * kSliceElements) return {};
  if (copies == Copies::kImages) {
    return x.dim() == 3 ? std::optional<std::int64_t>(0) : std::nullopt;
  }
  if (copies != Copies::kReduced || arguments[1].isNone()) return {};
  const std::int64_t reduced = arguments[1].toInt();
  for (std::int64_t i = 0; i < x.dim(); ++i) {
    if (reduced != i && reduced + x.dim() != i) return i;
  }
  return {};
}

// is_enlarged() returns whether a call that scales images makes them larger.
bool is_enlarged(const c10::IValue* arguments) {
  const at::Tensor& x = arguments[0].toTensor();
  const std::vector<std::int64_t> sizes = arguments[1].toIntVector();
  if (x.dim() != static_cast<std::int64_t>(sizes.size()) + 2) return false;
  return std::equal(sizes.begin(), sizes.end(), x.sizes().begin() + 2,
                    std::greater_equal<>());
}

// extremum() returns the largest or smallest numbers of a 16-bit type along the
// dimensions of a reduction, which have to be neighbours; else undefined.
at::Tensor extremum(const at::Tensor& x, bool is_smallest,
                    at::IntArrayRef dimensions, bool keeps) {
  const auto mask = mask_of(x, dimensions);
  if (!mask || !x.is_contiguous() || address_of(x) % 2 != 0) return {};
  const std::optional<SumShape> found = shape_of(x.sizes(), *mask);
  if (!found) return {};
  const SumShape& shape = *found;
  const bool has_rows = shape.inner == 1;
  if ((has_rows ? shape.terms : shape.inner) <
      static_cast<std::size_t>(kLeastColumns)) {
    return {};
  }
  if (!has_rows) {
    return column_extremes(x, shape, is_smallest,
                           reduced_sizes(x, *mask, keeps));
  }
  std::vector<double> extremes(shape.outer);
  translated([&] {
    swamp::row_extremes({const_cast<void*>(const_data(x)), shape.outer,
                         shape.terms, *scalar_type(x.scalar_type())},
                        is_smallest, extremes.data());
  });
  return rounded(extremes.data(), x, *mask, keeps);
}

using Stack = torch::jit::Stack;

// convert() replaces the tensors of a dtype among some values.
template <class Convert>
void convert(Stack& values, at::ScalarType from, const Convert& to) {
  for (c10::IValue& value : values) {
    if (value.isTensor() && value.toTensor().defined() &&
        value.toTensor().scalar_type() == from) {
      value = to(value.toTensor());
    }
  }
}

// run_bits() runs an operator that only moves elements on their bits. It
// returns false if indices are expanded, as PyTorch then moves rows, but not of
// integers, or if rows are so short that its loop over rows takes longer.
bool run_bits(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
              Stack* stack, at::ScalarType type) {
  constexpr std::int64_t kShortRow = 8;
  const std::size_t count = op.schema().arguments().size();
  const at::Tensor& moved = (*stack)[stack->size() - count].toTensor();
  if (moved.dim() != 0 && moved.size(-1) < kShortRow) return false;
  for (std::size_t i = stack->size() - count; i < stack->size(); ++i) {
    if (!(*stack)[i].isTensor()) continue;
    const at::Tensor& x = (*stack)[i].toTensor();
    if (x.scalar_type() != type && !x.is_non_overlapping_and_dense()) {
      return false;
    }
  }
  Stack call = torch::jit::pop(*stack, count);
  const at::Tensor first = call[0].toTensor();
  convert(call, type, [](const at::Tensor& x) { return x.view(at::kShort); });
  op.redispatchBoxed(keys, &call);
  stack->emplace_back(op.schema().is_mutable()
                          ? first
                          : call[0].toTensor().view(type));
  return true;
}

// run_table() looks up the results of an operator of one tensor and numbers. It
// returns false if it can't.
bool run_table(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
               Stack* stack, NumberTable& table) {
  const std::size_t count = op.schema().arguments().size();
  const c10::IValue* const given = stack->data() + stack->size() - count;
  std::vector<double> numbers;
  for (std::size_t i = 1; i < count; ++i) {
    const bool is_none = given[i].isNone();
    if (!is_none && !given[i].isDouble() && !given[i].isInt()) return false;
    numbers.push_back(is_none ? 1 : 0);
    numbers.push_back(is_none ? 0 : given[i].toScalar().toDouble());
  }
  const at::Tensor x = given[0].toTensor();
  const auto compute = [&](const at::Tensor& all) {
    Stack call(given, given + count);
    call[0] = all;
    op.redispatchBoxed(keys, &call);
    return call[0].toTensor();
  };
  const auto y =
      table.look_up(x, x.scalar_type(), std::move(numbers), compute);
  if (!y) return false;
  torch::jit::drop(*stack, count);
  stack->emplace_back(*y);
  return true;
}

// run_images() runs an operator that computes the gradient of images from that
// of others on slices of float32 copies. It returns false if it can't, or if
// the channels are last, where PyTorch's 16-bit kernel is fast.
bool run_images(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                Stack* stack) {
  const std::size_t count = op.schema().arguments().size();
  const c10::IValue* const given = stack->data() + stack->size() - count;
  const at::Tensor grad = given[0].toTensor(), x = given[1].toTensor();
  if (x.dim() < 4 || grad.dim() != x.dim() || x.numel() == 0 ||
      grad.size(0) != x.size(0) || grad.scalar_type() != x.scalar_type() ||
      x.suggest_memory_format() != at::MemoryFormat::Contiguous) {
    return false;
  }
  Stack arguments = torch::jit::pop(*stack, count);
  const std::int64_t size = x.size(0),
                     at_once = kSliceElements / 8 * at::get_num_threads(),
                     most = std::clamp<std::int64_t>(
                         at_once / (x.numel() / size), 1, size);
  const at::Tensor y = at::empty(x.sizes(), x.options()),
                   sizes = at::empty(x.narrow(0, 0, most).sizes(),
                                     x.options().dtype(at::kFloat));
  for (std::int64_t i = 0; i < size; i += most) {
    const std::int64_t images = std::min(most, size - i);
    arguments[0] = grad.narrow(0, i, images).to(at::kFloat);
    arguments[1] = sizes.narrow(0, 0, images);
    Stack call = arguments;
    op.redispatchBoxed(keys, &call);
    y.narrow(0, i, images).copy_(call[0].toTensor());
  }
  stack->emplace_back(y);
  return true;
}

// run_wide() runs an operator on float32 copies of its tensors of a 16-bit
// type, and rounds the results; with a dimension, on a copy of one slice of its
// only tensor after another, all in the same memory. The operator writes no
// argument.
void run_wide(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
              torch::jit::Stack* stack, at::ScalarType type,
              std::optional<std::int64_t> dimension) {
  Stack arguments = torch::jit::pop(*stack, op.schema().arguments().size());
  const auto run = [&](Stack call) {
    op.redispatchBoxed(keys, &call);
    convert(call, at::kFloat, [&](const at::Tensor& x) { return x.to(type); });
    return call;
  };
  if (!dimension.has_value()) {
    convert(arguments, type,
            [](const at::Tensor& x) { return x.to(at::kFloat); });
    for (c10::IValue& result : run(std::move(arguments))) {
      stack->push_back(std::move(result));
    }
    return;
  }
  const at::Tensor x = arguments[0].toTensor();
  const std::int64_t size = x.size(*dimension),
                     most = std::max<std::int64_t>(
                         1, kSliceElements / (x.numel() / size));
  const at::Tensor wide = at::empty_like(x.narrow(*dimension, 0, most),
                                         x.options().dtype(at::kFloat));
  std::vector<std::vector<at::Tensor>> results(op.schema().returns().size());
  for (std::int64_t i = 0; i < size; i += most) {
    const std::int64_t count = std::min(most, size - i);
    const at::Tensor slice = wide.narrow(*dimension, 0, count);
    arguments[0] = slice.copy_(x.narrow(*dimension, i, count));
    const Stack found = run(arguments);
    for (std::size_t k = 0; k < found.size(); ++k) {
      results[k].push_back(found[k].toTensor());
    }
  }
  for (const std::vector<at::Tensor>& slices : results) {
    // Dimensions before it are reduced.
    const std::int64_t kept = slices[0].dim() == x.dim() ? *dimension : 0;
    stack->emplace_back(at::cat(slices, kept));
  }
}

class Kernel final : public c10::OperatorKernel {
 public:
  // The forms of an operator have one `warned`, as one may call another.
  Kernel(const Row& row, std::shared_ptr<std::atomic<std::int64_t>> warned)
      : row_(row), warned_(std::move(warned)) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                  torch::jit::Stack* stack) {
    keys = keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER,
                                      c10::DispatchKey::BackendSelect);
    if (is_widened()) {
      std::int64_t largest;
      const auto type = narrow_type(op.schema(), *stack, largest);
      if (type.has_value() && (row_.widened & bit_of(*type)) != 0) {
        const at::AutoDispatchBelowADInplaceOrView guard;
        const std::size_t count = op.schema().arguments().size();
        const c10::IValue* const arguments =
            stack->data() + stack->size() - count;
        const bool is_smallest = row_.copies == Copies::kSmallest;
        if (is_smallest || row_.copies == Copies::kLargest) {
          at::Tensor found =
              extremum(arguments[0].toTensor(), is_smallest,
                       arguments[1].toIntVector(), arguments[2].toBool());
          if (found.defined()) {
            torch::jit::drop(*stack, count);
            stack->emplace_back(std::move(found));
            return;
          }
        } else if (row_.copies == Copies::kBits) {
          if (run_bits(op, keys, stack, *type)) return;
        } else if (row_.copies == Copies::kTable) {
          if (run_table(op, keys, stack, table_)) return;
        } else if (row_.copies == Copies::kImageGradients) {
          if (run_images(op, keys, stack)) return;
        } else if (const auto dimension =
                       sliced_dimension(row_.copies, arguments);
                   dimension.has_value() || row_.copies == Copies::kWhole ||
                   (row_.copies == Copies::kLarger
                        ? is_enlarged(arguments)
                        : largest <= kMostElements)) {
          run_wide(op, keys, stack, *type, dimension);
          return;
        }
      }
    }
    if (const unsigned types = is_reproducible() ? types_of(op, *stack) : 0;
        types != 0) {
      if (row_.depends == Depends::kThreads ||
          (row_.depends == Depends::kRealThreads && types != kComplex)) {
        const OneThread guard;
        op.redispatchBoxed(keys, stack);
        return;
      }
      report_unreproducible(
          op.schema().name(),
          row_.depends == Depends::kCpu ? "the CPU" : kOnCpuAndThreads,
          *warned_);
    }
    op.redispatchBoxed(keys, stack);
  }

 private:
  // With `reproducible`, float32 must have the same bits everywhere.
  bool is_widened() const {
    return row_.widened != 0 && (is_reproducible() ? (row_.types & kFloat) == 0
                                                   : is_half_precision());
  }

  // types_of() returns the type that a call is computed in, as PyTorch promotes
  // its tensors and numbers, if its bits depend on something.
  unsigned types_of(const c10::OperatorHandle& op,
                    const torch::jit::Stack& stack) const {
    const auto& arguments = op.schema().arguments();
    const c10::IValue* const values =
        stack.data() + stack.size() - arguments.size();
    at::native::ResultTypeState state;
    unsigned found = 0;
    bool is_sparse = false;
    const auto add = [&](const at::Tensor& x) {
      if (!x.defined() || !x.is_cpu()) return;
      found |= bit_of(x.scalar_type());
      is_sparse = is_sparse || x.layout() != at::kStrided;
      // PyTorch does not promote them.
      if ((found & kOther) == 0) {
        state = at::native::update_result_type_state(x, state);
      }
    };
    std::optional<at::ScalarType> chosen;
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      if (arguments[i].is_out()) continue;
      if (values[i].isTensor()) {
        add(values[i].toTensor());
      } else if (values[i].isTensorList()) {
        for (const at::Tensor& x : values[i].toTensorVector()) add(x);
      } else if (values[i].isScalar() &&
                 arguments[i].type()->kind() == c10::TypeKind::NumberType) {
        state =
            at::native::update_result_type_state(values[i].toScalar(), state);
      } else if (values[i].isInt() && arguments[i].name() == "dtype") {
        chosen = values[i].toScalarType();
      }
    }
    if (found == 0 || (found & kOther) != 0) return 0;
    unsigned types = bit_of(at::native::result_type(state));
    if (types == kInteger && chosen.has_value()) {
      types = bit_of(*chosen);
    } else if (types == kInteger && (row_.types & kInteger) != 0) {
      types = bit_of(c10::typeMetaToScalarType(c10::get_default_dtype()));
    }
    if (is_sparse && (types & kAll) != 0) types |= kSparse;
    types &= row_.types & ~kInteger;
    return types != 0 && is_exact(values, types) ? 0 : types;
  }

  // is_exact() takes the arguments of a call.
  bool is_exact(const c10::IValue* values, unsigned types) const {
    switch (row_.exact) {
      case Exact::kProducts: {
        if (types != kDouble || values[1].isComplexDouble()) return false;
        // The last two are a quotient and swamp's sqrt().
        const double n = values[1].toScalar().toDouble();
        return n == 0 || n == 1 || n == 2 || n == 3 || n == -2 || n == -1 ||
               n == 0.5;
      }
      case Exact::kRealDivisor:
        return !values[1].toTensor().is_complex();
      case Exact::kNone:
        break;
    }
    return false;
  }

  const Row row_;
  const std::shared_ptr<std::atomic<std::int64_t>> warned_;
  NumberTable table_;  // of kTable
};

// One for all forms.
std::atomic<std::int64_t> kaiser_warned{0};

// KaiserWindow is in front of the forms of kaiser_window(), whose own kernels
// have the key BackendSelect, as they have no tensors.
template <class... Form>
struct KaiserWindow {
  static at::Tensor call(std::int64_t length, Form... form,
                         std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout> layout,
                         std::optional<at::Device> device,
                         std::optional<bool> pins) {
    if (is_reproducible()) {
      report_unreproducible("aten::kaiser_window", "the CPU", kaiser_warned);
    }
    return at::compositeexplicitautograd::kaiser_window(length, form..., dtype,
                                                        layout, device, pins);
  }
};

}  // namespace
}  // namespace unreproducible

std::int64_t set_unreproducible(std::int64_t value) {
  unreproducible::choices.fetch_add(1);
  return unreproducible::action.exchange(value);
}

void report_unreproducible(const std::string& name, const char* on,
                           std::atomic<std::int64_t>& warned) {
  const std::int64_t now =
      unreproducible::action.load(std::memory_order_relaxed);
  if (now == kIgnore) return;
  constexpr const char* kChoices =
      "help(swamp_torch.enable) lists such operators; enable()'s argument "
      "unreproducible is 'warn', 'raise' or 'ignore'.";
  TORCH_CHECK(now != kRaise, "swamp_torch: reproducible: got ", name,
              ", which is PyTorch's, and whose bits depend on ", on, ". ",
              kChoices);
  const std::int64_t choice =
      unreproducible::choices.load(std::memory_order_relaxed);
  if (warned.exchange(choice) == choice) return;
  TORCH_WARN("swamp_torch: reproducible: ", name,
             " is PyTorch's, and its bits depend on ", on, ". ", kChoices);
}

TORCH_LIBRARY_IMPL(aten, BackendSelect, m) {
  using namespace unreproducible;
  std::set<std::string> added;  // forms of two rows may share one with `out`
  const auto add_all = [&](const std::string& whole, const Row& row) {
    const auto warned = std::make_shared<std::atomic<std::int64_t>>(0);
    const auto add = [&](const std::string& name) {
      if (!added.insert(name).second) return;
      Row one = row;
      // Other forms, which write to `out` or in place, stay of 16 bits.
      if (name != whole) one.widened = 0;
      m.impl(name.c_str(), torch::CppFunction::makeFromBoxedFunctor(
                               std::make_unique<Kernel>(one, warned)));
    };
    const auto add_if_it_exists = [&](const std::string& name,
                                      const std::string& overload) {
      const bool exists = c10::Dispatcher::singleton()
                              .findSchema({"aten::" + name, overload})
                              .has_value();
      if (exists) add(overload.empty() ? name : name + "." + overload);
      return exists;
    };
    add(whole);
    const std::size_t dot = std::min(whole.find('.'), whole.size());
    const std::string name = whole.substr(0, dot),
                      overload =
                          dot == whole.size() ? "" : whole.substr(dot + 1);
    add_if_it_exists(name + "_", overload);
    if (row.types == 0) return;  // nothing to report
    for (const char* out : {"out", "grad_input", "output"}) {
      if (overload.empty() || !add_if_it_exists(name, overload + "_" + out)) {
        add_if_it_exists(name, out);
      }
    }
  };
  for (const Row& row : kRows) add_all(row.name, row);
  for (const Names& list : kNames) {
    std::istringstream names(list.names);
    for (std::string name; names >> name;) {
      add_all(name, {"", list.types, Depends::kCpuAndThreads});
    }
  }
}

TORCH_LIBRARY_IMPL(aten, CPU, m) {
  using namespace unreproducible;
  m.impl("kaiser_window", &KaiserWindow<>::call);
  m.impl("kaiser_window.periodic", &KaiserWindow<bool>::call);
  m.impl("kaiser_window.beta", &KaiserWindow<bool, double>::call);
}

}  // namespace swamp::aten
