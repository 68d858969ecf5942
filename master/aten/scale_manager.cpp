// torch.classes.swamp.ScaleManager: swamp/scale_manager.h, by the C API, whose
// options are a text; and the scales of recipes without state as an operator.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/util/Exception.h>
#include <torch/custom_class.h>

#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "master/aten/checks.h"
#include "master/aten/registration.h"
#include "master/aten/row_tensors.h"
#include "master/aten/tensor.h"
#include "swamp/c_api.h"

namespace swamp::aten {
namespace {

using at::Tensor;
using ThreeTensors = std::tuple<Tensor, Tensor, Tensor>;
using TwoTensors = std::tuple<Tensor, Tensor>;

void check(swamp_status status) {
  TORCH_CHECK(status == SWAMP_OK, "swamp: ", swamp_last_error());
}

// ScaleManager is swamp::ScaleManager as a class of PyTorch.
class ScaleManager final : public torch::CustomClassHolder {
 public:
  ScaleManager(std::string name, std::int64_t forward, std::int64_t backward,
               std::string options)
      : name_(std::move(name)),
        options_(std::move(options)),
        forward_(forward),
        backward_(backward) {
    TORCH_CHECK(forward >= 0 && backward >= 0, "forward, backward: got ",
                forward, " and ", backward, ", expected at least 0");
    swamp_scale_manager* made = nullptr;
    check(swamp_scale_manager_create(
        name_.c_str(), static_cast<std::size_t>(forward),
        static_cast<std::size_t>(backward),
        options_.empty() ? nullptr : options_.c_str(), &made));
    manager_.reset(made);
  }

  void observe_all(const Tensor& amax) {
    const Tensor in = row_major(amax.to(at::kFloat));
    check(
        swamp_scale_manager_observe_all(manager_.get(), values_of<float>(in),
                                        static_cast<std::size_t>(in.numel())));
  }
  Tensor amax() const {
    Tensor result = at::empty({count()}, at::kFloat);
    check(swamp_scale_manager_amax(manager_.get(), data_of<float>(result),
                                   static_cast<std::size_t>(count())));
    return result;
  }
  void update() { check(swamp_scale_manager_update(manager_.get())); }
  TwoTensors scales() const {
    Tensor scale = at::empty({count()}, at::kFloat);
    Tensor scale_inv = at::empty_like(scale);
    for (std::int64_t i = 0; i < count(); ++i) {
      check(swamp_scale_manager_scale(
          manager_.get(), static_cast<std::size_t>(i),
          data_of<float>(scale) + i, data_of<float>(scale_inv) + i));
    }
    return {scale, scale_inv};
  }
  // block_scales() returns scales, their inverses, and their codes.
  ThreeTensors block_scales(std::int64_t index, const Tensor& amax) const {
    TORCH_CHECK(index >= 0 && index < count(), "index: got ", index,
                ", expected at least 0 and less than ", count());
    const Tensor in = row_major(amax.to(at::kFloat));
    Tensor scale = at::empty_like(in), scale_inv = at::empty_like(in);
    Tensor codes = at::empty_like(in, in.options().dtype(at::kByte));
    for (std::int64_t i = 0; i < in.numel(); ++i) {
      swamp_block_scale block = {sizeof(swamp_block_scale), 0, 0, 0};
      check(swamp_scale_manager_block_scale(manager_.get(),
                                            static_cast<std::size_t>(index),
                                            values_of<float>(in)[i], &block));
      data_of<float>(scale)[i] = block.scale;
      data_of<float>(scale_inv)[i] = block.scale_inv;
      data_of<std::uint8_t>(codes)[i] = block.code;
    }
    return {scale, scale_inv, codes};
  }
  std::string state_dict() const {
    const char* json = nullptr;
    check(swamp_scale_manager_state_dict(manager_.get(), &json));
    return json;
  }
  void load_state_dict(const std::string& json) {
    check(swamp_scale_manager_load_state_dict(manager_.get(), json.c_str()));
  }

  // state() is name, numbers of tensors, options and state_dict(), for pickle.
  std::vector<std::string> state() const {
    return {name_, std::to_string(forward_), std::to_string(backward_),
            options_, state_dict()};
  }

 private:
  struct Destroy {
    void operator()(swamp_scale_manager* manager) const {
      swamp_scale_manager_destroy(manager);
    }
  };
  std::int64_t count() const { return forward_ + backward_; }

  std::string name_, options_;
  std::int64_t forward_, backward_;
  std::unique_ptr<swamp_scale_manager, Destroy> manager_;
};

// current_scale() returns the scale of each amax, and its inverse, by a recipe
// without state.
TwoTensors current_scale(const Tensor& amax, const std::string& recipe,
                         const std::string& options, bool backward) {
  Tensor scale = at::empty_like(amax, at::MemoryFormat::Contiguous);
  Tensor scale_inv = at::empty_like(scale);
  computed(scale, [&] {
    const std::int64_t count = amax.numel();
    ScaleManager manager(recipe, backward ? 0 : count, backward ? count : 0,
                         options);
    manager.observe_all(amax.reshape(-1));
    const auto [found, inverse] = manager.scales();
    scale.copy_(found.view_as(scale));
    scale_inv.copy_(inverse.view_as(scale));
  });
  return {scale, scale_inv};
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(swamp, m) {
  define<&current_scale, Derivative::kNone>(
      m,
      "_current_scale(Tensor amax, str recipe, str options=\"\", "
      "bool backward=False) -> (Tensor, Tensor)");
  m.class_<ScaleManager>("ScaleManager")
      .def(torch::init<std::string, std::int64_t, std::int64_t, std::string>())
      .def("observe_all", &ScaleManager::observe_all)
      .def("amax", &ScaleManager::amax)
      .def("update", &ScaleManager::update)
      .def("scales", &ScaleManager::scales)
      .def("block_scales", &ScaleManager::block_scales)
      .def("state_dict", &ScaleManager::state_dict)
      .def("load_state_dict", &ScaleManager::load_state_dict)
      .def_pickle(
          [](const c10::intrusive_ptr<ScaleManager>& self) {
            return self->state();
          },
          [](const std::vector<std::string>& state) {
            auto made = c10::make_intrusive<ScaleManager>(
                state.at(0), std::stoll(state.at(1)), std::stoll(state.at(2)),
                state.at(3));
            made->load_state_dict(state.at(4));
            return made;
          });
}

}  // namespace swamp::aten
