#include "recorded_scaler.h"

#include <cmath>
#include <cstring>
#include <utility>

#include "swamp/float_formats.h"

namespace swamp::test {
namespace {

GradScalerOptions options_of(const ProtocolRecord& record) {
  GradScalerOptions options;
  options.init_scale = record.init_scale;
  options.growth_factor = record.growth_factor;
  options.backoff_factor = record.backoff_factor;
  options.growth_interval = record.growth_interval;
  options.enabled = record.enabled;
  return options;
}

// Fnv is FNV-1a-64 over doubles; every nan is the same.
class Fnv {
 public:
  void add(double value) {
    std::uint64_t bits = 0x7ff8000000000000u;
    if (!std::isnan(value)) std::memcpy(&bits, &value, sizeof bits);
    for (int byte = 0; byte < 8; ++byte) {
      hash_ = (hash_ ^ (bits >> (8 * byte) & 0xff)) * 0x100000001b3u;
    }
  }
  void add(const Array& array) {
    for (std::size_t i = 0; i < array.count(); ++i) add(array.get(i));
  }
  std::uint64_t hash() const { return hash_; }

 private:
  std::uint64_t hash_ = 0xcbf29ce484222325u;
};

}  // namespace

void Array::set(std::size_t index, double value) {
  const auto narrow = static_cast<float>(value);
  std::uint64_t bits = 0;
  if (format_->type == kFloat16) {
    bits = float16_from_float(narrow);
  } else if (format_->type == kBFloat16) {
    bits = bfloat16_from_float(narrow);
  } else if (format_->type == kFloat32) {
    bits = float_to_bits(narrow);
  } else {
    std::memcpy(&bits, &value, sizeof bits);
  }
  store_bits(*format_, bits_.data(), index, bits);
}

double Array::get(std::size_t index) const {
  const std::uint64_t bits = load_bits(*format_, bits_.data(), index);
  if (format_->type == kFloat64) {
    double value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  }
  const auto half = static_cast<std::uint16_t>(bits);
  return static_cast<double>(
      format_->type == kFloat16 ? float16_to_float(half)
      : format_->type == kBFloat16
          ? bfloat16_to_float(half)
          : float_from_bits(static_cast<std::uint32_t>(bits)));
}

RecordedOptimizer::RecordedOptimizer(std::vector<Array> list)
    : arrays(std::move(list)) {
  fill(0);
}

void RecordedOptimizer::fill(int kind) {
  for (std::size_t t = 0; t < arrays.size(); ++t) {
    for (std::size_t i = 0; i < arrays[t].count(); ++i) {
      arrays[t].set(i,
                    1.25 * static_cast<double>(i + 1) - static_cast<double>(t));
    }
  }
  if (kind == 1) arrays.front().set(0, HUGE_VAL);
  if (kind == 2) arrays.back().set(arrays.back().count() - 1, std::nan(""));
  list_.clear();
  if (kind == 3) return;  // no gradients
  for (Array& array : arrays) list_.push_back(array.tensor());
}

void RecordedOptimizer::step() {
  if (throws) {
    throws = false;
    throw Boom();
  }
  ++steps;
}

Player::Player(const ProtocolRecord& record)
    : options_(options_of(record)), scaler_(options_) {
  optimizers_.emplace_back(std::vector<Array>{{kFloat32Format, 4}});
  optimizers_.emplace_back(
      std::vector<Array>{{kBFloat16Format, 3}, {kFloat64Format, 2}});
  optimizers_.emplace_back(std::vector<Array>{{kFloat16Format, 2}});
  for (const Format* format : kFormats) outputs_.emplace_back(*format, 2);
}

void Player::scale_outputs(double number) {
  std::vector<Array> outputs;
  std::vector<Tensor> list;
  for (const Format* format : kFormats) {
    outputs.emplace_back(*format, 2);
    outputs.back().set(0, number);
    outputs.back().set(1, 1.5);
    list.push_back(outputs.back().tensor());
  }
  scaler_.scale_(list);
  outputs_ = outputs;
}

void Player::load(double scale) {
  const std::string state = scaler_.state_dict();
  if (state == "{}") return;
  scaler_.load_state_dict("{\"scale\":" + std::to_string(scale) +
                          state.substr(state.find(',')));
}

void Player::call(const ProtocolRecord::Call& call) {
  RecordedOptimizer* optimizer = nullptr;
  if (call.name.size() > 1) {
    optimizer = &optimizers_.at(static_cast<std::size_t>(call.name[1] - '0'));
  }
  const double number = call.number;
  switch (call.name[0]) {
    case 's':
      loss_ = scaler_.scale(static_cast<float>(number));
      wide_loss_ = scaler_.scale(number);
      return;
    case 'v':
      return scale_outputs(number);
    case 'g':
      return optimizer->fill(static_cast<int>(number));
    case 't':
      optimizer->throws = true;
      return;
    case 'u':
      return scaler_.unscale_(*optimizer);
    case 'p':
      scaler_.step(*optimizer);
      return;
    case 'U':
      scaler_.update();
      return;
    case 'N':
      scaler_.update(number);
      return;
    case 'G':
      return scaler_.set_growth_factor(number);
    case 'B':
      return scaler_.set_backoff_factor(number);
    case 'I':
      return scaler_.set_growth_interval(static_cast<std::int64_t>(number));
    case 'E':
      return scaler_.load_state_dict("{}");
    case 'L': {
      GradScaler fresh(options_);
      fresh.load_state_dict(scaler_.state_dict());
      scaler_ = std::move(fresh);
      return;
    }
    case 'K':
      return load(number);
    default:
      throw std::logic_error("no such call: " + call.name);
  }
}

std::uint64_t Player::digest() const {
  Fnv fnv;
  fnv.add(static_cast<double>(loss_));
  fnv.add(wide_loss_);
  for (const Array& output : outputs_) fnv.add(output);
  for (const RecordedOptimizer& optimizer : optimizers_) {
    for (const Array& array : optimizer.arrays) fnv.add(array);
  }
  return fnv.hash();
}

std::vector<int> Player::steps() const {
  std::vector<int> all;
  for (const RecordedOptimizer& optimizer : optimizers_) {
    all.push_back(optimizer.steps);
  }
  return all;
}

}  // namespace swamp::test
