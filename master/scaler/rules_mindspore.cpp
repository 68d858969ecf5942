// The rules of MindSpore's cell and manager and of MindFormers' adaptive cell.
#include <algorithm>

#include "master/scaler/scaler.h"

namespace swamp::scaler {
namespace {

// cell_step() is what both cells do; it returns whether the window was full.
bool cell_step(Scaler& s, bool overflow, double window) {
  const bool full = window <= s.iteration - s.last_overflow;
  if (overflow) {
    s.scale = std::max(divided_by(s, s.growth_factor), 1.0);
  } else if (full) {
    s.scale = times(s, s.growth_factor);
  }
  if (overflow || full) s.last_overflow = s.iteration;
  s.iteration += 1;
  return full;
}

}  // namespace

// update_mindspore_cell() is mindspore/nn/wrap/loss_scale.py,
// DynamicLossScaleUpdateCell.construct(): at least 1, no cap.
void update_mindspore_cell(Scaler& s, float found_inf) {
  cell_step(s, is_overflow(s, found_inf), s.growth_interval);
}

// update_mindspore_manager() is mindspore/amp (train/loss_scale_manager.py),
// DynamicLossScaleManager.update_loss_scale(), in Python floats.
void update_mindspore_manager(Scaler& s, float found_inf) {
  constexpr double kMaxBadSteps = 1000;
  if (is_overflow(s, found_inf)) {
    s.scale = std::max(s.scale * (1 / s.growth_factor), 1.0);
    s.last_overflow = s.iteration;
    s.bad_steps += 1;
  } else {
    if (modulo(s, s.iteration - s.last_overflow, s.growth_interval) == 0) {
      s.scale *= s.growth_factor;
    }
    s.bad_steps = 0;
  }
  if (s.bad_steps > kMaxBadSteps) {
    raise(s, "RuntimeError",
          "Dynamic loss scale Continuous overflow  " +
              std::to_string(static_cast<long long>(s.bad_steps)) +
              "  times, has exceeded maximum threshold.");
  }
  s.iteration += 1;
}

// update_mindformers() is mindformers/wrapper/adaptive_loss_scale.py,
// AdaptiveLossScaleUpdateCell.construct(). Both counters are mod 4; three
// growths move to the next window of the list, three overflows to the hidden
// window 1, whose index is -1.
void update_mindformers(Scaler& s, float found_inf) {
  const bool overflow = is_overflow(s, found_inf);
  const bool full = cell_step(s, overflow, s.window);
  if (full && !overflow) {
    s.up_count = s.up_count == 3 ? 0 : s.up_count + 1;
    s.down_count = 0;
  }
  const auto last = static_cast<double>(s.window_list.size()) - 1;
  if (s.up_count == 3 && s.list_index != last) {
    s.list_index += 1;
    s.up_count = 0;
    s.window = s.window_list.at(static_cast<std::size_t>(s.list_index));
  }
  if (!overflow) return;
  s.down_count = s.down_count == 3 ? 0 : s.down_count + 1;
  if (s.down_count == 3 && s.list_index > 0) {
    s.window = 1;
    s.list_index = -1;
    s.down_count = 0;
    s.up_count = 0;
  }
}

}  // namespace swamp::scaler
