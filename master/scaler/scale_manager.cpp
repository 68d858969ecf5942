// ScaleManager: the table of recipes, their options, and a step.
#include "master/scaler/scale_manager.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "master/scaler/scaler.h"
#include "master/text.h"
#include "runtime/fork_cancel.h"

namespace swamp {

struct ScaleManager::Impl {
  const scaler::Recipe& recipe;
  std::string name;
  scaler::RecipeOptions options;
  std::size_t forward;
  std::vector<scaler::ScaledTensor> tensors;
};

namespace scaler {
namespace {

using master::joined;
using master::refuse;

constexpr std::size_t kMaxTensors = std::size_t{1} << 24;

const std::vector<Recipe>& table() {
  static runtime::MadeOnce<const std::vector<Recipe>> all;
  return all.get([] {
    std::vector<Recipe> recipes;
    for (auto* part : {delayed_recipes, current_recipes}) {
      for (Recipe& recipe : part()) recipes.push_back(std::move(recipe));
    }
    return recipes;
  });
}

const Recipe& find_recipe(const std::string& name) {
  for (const Recipe& recipe : table()) {
    if (name == recipe.name) return recipe;
  }
  refuse("recipe", "'" + name + "'", "one of " + joined(ScaleManager::names()));
}

bool same_word(const std::string& a, const std::string& b) {
  const auto lower = [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
  };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [&](char x, char y) { return lower(x) == lower(y); });
}

// read() returns the value of an option as a number.
double read(const Recipe& recipe, const RecipeOption& option,
            const ScalerValue& value) {
  std::string expected;
  if (!option.words.empty()) {
    const auto* text = std::get_if<std::string>(&value);
    std::vector<std::string> words;
    for (const Word& word : option.words) {
      if (text != nullptr && same_word(*text, word.text)) return word.value;
      words.push_back("'" + std::string(word.text) + "'");
    }
    expected = (words.size() > 1 ? "one of " : "") + joined(words);
  } else if (option.boolean) {
    if (const bool* truth = std::get_if<bool>(&value)) return *truth ? 1 : 0;
    expected = "true or false";
  } else {
    double number = std::numeric_limits<double>::quiet_NaN();
    if (const auto* integer = std::get_if<std::int64_t>(&value)) {
      number = static_cast<double>(*integer);
    } else if (const double* real = std::get_if<double>(&value)) {
      number = *real;
    }
    if (number >= option.low && number <= option.high &&
        (!option.integer || number == std::trunc(number))) {
      return number;
    }
    expected = std::string(option.integer ? "an integer" : "a number") +
               ", at least " + master::number_text(option.low) + ", at most " +
               master::number_text(option.high);
  }
  refuse(std::string(recipe.name) + ": " + option.name, python_text(value),
         expected);
}

RecipeOptions read_options(const Recipe& recipe, const ScalerOptions& options) {
  RecipeOptions read_values = recipe.defaults;
  refuse_unknown(recipe, options);
  for (const RecipeOption& option : recipe.options) {
    const auto given = options.find(option.name);
    if (given == options.end()) continue;
    read_values.*option.member = read(recipe, option, given->second);
  }
  return read_values;
}

// make_tensor() returns a tensor of the forward or of the backward pass.
ScaledTensor make_tensor(const Recipe& recipe, const RecipeOptions& options,
                         bool backward) {
  ScaledTensor tensor;
  tensor.elements =
      kFormats[static_cast<std::size_t>(options.formats)][backward ? 1 : 0];
  if (recipe.update != nullptr) {
    tensor.history.resize(static_cast<std::size_t>(options.history_length));
  }
  return tensor;
}

void check_amax(const std::string& name, float amax, bool may_be_unseen) {
  if (!(amax < 0) || (may_be_unseen && amax == -1)) return;
  refuse(name, master::number_text(static_cast<double>(amax)),
         may_be_unseen ? "at least 0, nan, or -1" : "at least 0, or nan");
}

void observe(ScaledTensor& tensor, float amax) {
  if (amax < 0) return;
  tensor.observed = true;
  amax = std::fabs(amax);  // of -0 and of nan
  if (!(amax <= tensor.amax) && !std::isnan(tensor.amax)) tensor.amax = amax;
}

}  // namespace

std::vector<float> history_of(const Recipe& recipe,
                              const ScaledTensor& tensor) {
  std::vector<float> history = tensor.history;
  if (recipe.amax_in_history) history.front() = tensor.amax;
  return history;
}

}  // namespace scaler

ScaleManager::ScaleManager(std::unique_ptr<Impl> impl) noexcept
    : impl_(std::move(impl)) {}
ScaleManager::ScaleManager(ScaleManager&& other) noexcept = default;
ScaleManager& ScaleManager::operator=(ScaleManager&& other) noexcept = default;
ScaleManager::~ScaleManager() = default;

ScaleManager ScaleManager::from_name(const std::string& name,
                                     std::size_t forward, std::size_t backward,
                                     const ScalerOptions& options) {
  const scaler::Recipe& recipe = scaler::find_recipe(name);
  const scaler::RecipeOptions values = scaler::read_options(recipe, options);
  for (const auto& [argument, count] :
       {std::pair{"forward", forward}, std::pair{"backward", backward}}) {
    if (count <= scaler::kMaxTensors) continue;
    master::refuse(name + ": " + argument, std::to_string(count),
                   "at most " + std::to_string(scaler::kMaxTensors));
  }
  std::vector<scaler::ScaledTensor> tensors(
      forward, scaler::make_tensor(recipe, values, false));
  tensors.resize(forward + backward, scaler::make_tensor(recipe, values, true));
  return ScaleManager(std::unique_ptr<Impl>(
      new Impl{recipe, name, values, forward, std::move(tensors)}));
}

std::vector<std::string> ScaleManager::names() {
  std::vector<std::string> names;
  for (const scaler::Recipe& recipe : scaler::table()) {
    names.emplace_back(recipe.name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

const std::string& ScaleManager::name() const noexcept { return impl_->name; }

std::size_t ScaleManager::count() const noexcept {
  return impl_->tensors.size();
}

void ScaleManager::observe_all(const float* amax, std::size_t count) {
  if (count != this->count()) {
    master::refuse(name() + ": count", std::to_string(count),
                   std::to_string(this->count()) + ", that of the tensors");
  }
  if (amax == nullptr && count != 0) {
    master::refuse(name() + ": amax", "null", "an address");
  }
  for (std::size_t i = 0; i < count; ++i) {
    scaler::check_amax(name() + ": amax[" + std::to_string(i) + "]", amax[i],
                       true);
  }
  for (std::size_t i = 0; i < count; ++i) {
    scaler::observe(impl_->tensors[i], amax[i]);
  }
}

void ScaleManager::observe(std::size_t index, float amax) {
  scaler::ScaledTensor& tensor = impl_->tensors[checked(index)];
  scaler::check_amax(name() + ": amax", amax, true);
  scaler::observe(tensor, amax);
}

std::vector<float> ScaleManager::amax() const {
  std::vector<float> amax;
  for (const scaler::ScaledTensor& tensor : impl_->tensors) {
    amax.push_back(tensor.observed ? tensor.amax : -1);
  }
  return amax;
}

void ScaleManager::reduce(Communicator& communicator) {
  if (impl_->options.reduces == 0) return;
  std::vector<float> amax = this->amax();
  for (float& each : amax) {
    if (impl_->recipe.nan_is_inf && std::isnan(each)) {
      each = std::numeric_limits<float>::infinity();
    }
  }
  communicator.max(amax.data(), amax.size());
  for (std::size_t i = 0; i < amax.size(); ++i) {
    impl_->tensors[i].amax = 0;
    scaler::observe(impl_->tensors[i], amax[i]);
  }
}

void ScaleManager::update() {
  const scaler::Recipe& recipe = impl_->recipe;
  for (scaler::ScaledTensor& tensor : impl_->tensors) {
    if (recipe.update != nullptr) {
      recipe.update(impl_->options, tensor);
    } else if (tensor.observed) {
      tensor.scale = recipe.current(impl_->options, tensor, tensor.amax);
    }
    tensor.amax = 0;
    tensor.observed = false;
  }
}

std::size_t ScaleManager::checked(std::size_t index) const {
  if (index < count()) return index;
  master::refuse(name() + ": index", std::to_string(index),
                 "less than " + std::to_string(count()));
}

BlockScale ScaleManager::scale_of(std::size_t index) const {
  const scaler::ScaledTensor& tensor = impl_->tensors[checked(index)];
  const scaler::Recipe& recipe = impl_->recipe;
  const bool in_time =
      tensor.observed && recipe.current != nullptr &&
      (recipe.in_time == nullptr || recipe.in_time(impl_->options, tensor));
  return in_time ? recipe.current(impl_->options, tensor, tensor.amax)
                 : tensor.scale;
}

float ScaleManager::scale(std::size_t index) const {
  return scale_of(index).scale;
}

float ScaleManager::scale_inv(std::size_t index) const {
  return scale_of(index).scale_inv;
}

BlockScale ScaleManager::block_scale(std::size_t index, float amax) const {
  scaler::ScaledTensor tensor;
  tensor.scale = scale_of(index);
  tensor.elements = impl_->tensors[index].elements;
  if (impl_->recipe.block == nullptr) {
    master::refuse("block_scale", name(), "a recipe that scales blocks",
                   SWAMP_UNSUPPORTED);
  }
  scaler::check_amax(name() + ": amax", amax, false);
  return impl_->recipe.block(impl_->options, tensor, std::fabs(amax));
}

std::vector<float> ScaleManager::history(std::size_t index) const {
  return scaler::history_of(impl_->recipe, impl_->tensors[checked(index)]);
}

std::string ScaleManager::state_dict() const {
  return scaler::write_scales(impl_->recipe, impl_->forward, impl_->tensors);
}

void ScaleManager::load_state_dict(const std::string& json) {
  scaler::read_scales(impl_->recipe, impl_->forward, json, impl_->tensors);
}

}  // namespace swamp
