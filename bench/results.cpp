#include "bench/results.h"

#include <fmt/format.h>

#include <algorithm>

namespace swamp::bench {

void Results::add(const std::string& name, double seconds) {
  const auto [at, is_new] = seconds_.emplace(name, seconds);
  if (!is_new) at->second = std::min(at->second, seconds);
}

std::optional<Measured> Results::find(const std::string& name) const {
  const auto seconds = seconds_.find(name);
  const auto work = work_.find(name);
  if (seconds == seconds_.end() || work == work_.end()) return std::nullopt;
  return Measured{name, seconds->second, work->second};
}

std::optional<Measured> Results::fastest(
    const std::vector<std::string>& names) const {
  std::optional<Measured> best;
  for (const std::string& name : names) {
    const std::optional<Measured> one = find(name);
    if (one && (!best || one->seconds < best->seconds)) best = one;
  }
  return best;
}

std::string time_text(double seconds) {
  if (seconds < 1e-6) return fmt::format("{:.0f} ns", seconds * 1e9);
  if (seconds < 1e-3) return fmt::format("{:.2f} us", seconds * 1e6);
  return fmt::format("{:.2f} ms", seconds * 1e3);
}

std::string bytes_text(double bytes) {
  constexpr double kKib = 1024;
  if (bytes < kKib * kKib) return fmt::format("{:g} KiB", bytes / kKib);
  return fmt::format("{:g} MiB", bytes / kKib / kKib);
}

std::string aim_text(const Aim& aim, double value) {
  if (aim.kind == Aim::none) return "";
  const bool least = aim.kind == Aim::at_least;
  const bool ok = least ? value >= aim.value : value <= aim.value;
  return fmt::format("{} {:g} {}", least ? ">=" : "<=", aim.value,
                     ok      ? "ok"
                     : least ? "below"
                             : "above");
}

namespace {

std::string speed_text(const Measured& measured) {
  return fmt::format("{:.1f} GB/s", measured.gigabytes_per_second());
}

// Which of several cases was the best: "prefetch:2048" of a roof.
std::string variant_text(const std::string& name) {
  const std::size_t begin = name.find("prefetch:");
  if (begin == std::string::npos) return "";
  return " " + name.substr(begin, name.find('/', begin) - begin);
}

}  // namespace

Row speed_row(std::string what, std::string name, std::string label,
              std::vector<std::string> against, Aim aim) {
  return [=](const Results& results) -> std::optional<Line> {
    const std::optional<Measured> measured = results.find(name);
    const std::optional<Measured> other = results.fastest(against);
    if (!measured) return std::nullopt;
    Line line{what, speed_text(*measured), "", std::nullopt, ""};
    if (other) {
      line.ratio =
          measured->gigabytes_per_second() / other->gigabytes_per_second();
      line.against =
          label + " " + speed_text(*other) + variant_text(other->name);
      line.aim = aim_text(aim, *line.ratio);
    }
    return line;
  };
}

Row time_row(std::string what, std::string name, std::string label,
             std::string against, Aim aim) {
  return [=](const Results& results) -> std::optional<Line> {
    const std::optional<Measured> measured = results.find(name);
    const std::optional<Measured> other = results.find(against);
    if (!measured) return std::nullopt;
    Line line{what, time_text(measured->seconds), "", std::nullopt, ""};
    if (other) {
      line.ratio = measured->seconds / other->seconds;
      line.against = label + " " + time_text(other->seconds);
      line.aim = aim_text(aim, *line.ratio);
    }
    return line;
  };
}

Row item_row(std::string what, std::string name, Aim aim) {
  return [=](const Results& results) -> std::optional<Line> {
    const std::optional<Measured> measured = results.find(name);
    if (!measured) return std::nullopt;
    const double nanoseconds = measured->seconds / measured->work.items * 1e9;
    return Line{what, fmt::format("{:.1f} ns a tensor", nanoseconds),
                speed_text(*measured), std::nullopt,
                aim_text(aim, nanoseconds)};
  };
}

}  // namespace swamp::bench
