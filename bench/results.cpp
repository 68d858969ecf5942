#include "bench/results.h"

#include <fmt/format.h>

#include <algorithm>

namespace swamp::bench {

void Results::add(const std::string& name, double seconds) {
  ++taken_[name];
  const auto [at, is_new] = seconds_.emplace(name, seconds);
  if (!is_new) at->second = std::min(at->second, seconds);
}

std::optional<Measured> Results::find(const std::string& name) const {
  const auto seconds = seconds_.find(name);
  const auto work = work_.find(name);
  if (seconds == seconds_.end() || work == work_.end()) return std::nullopt;
  return Measured{name, seconds->second, work->second};
}

bool Results::too_few(const std::string& name) const {
  constexpr int kEnough = 3;
  if (left_out_.count(name) == 0) return false;
  const auto taken = taken_.find(name);
  return taken == taken_.end() || taken->second < kEnough;
}

bool Results::too_few(const std::vector<std::string>& names) const {
  return std::any_of(names.begin(), names.end(),
                     [this](const std::string& name) { return too_few(name); });
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

// The line of a case that did not run, if any: one that should have, had there
// been time, must not vanish from the table.
std::optional<Line> missing_line(const Results& results,
                                 const std::string& what,
                                 const std::string& name) {
  if (!results.too_few(name)) return std::nullopt;
  return Line{what, "", "", std::nullopt, kTooFew};
}

void judge(Line& line, double ratio, const Aim& aim, bool too_few) {
  if (!too_few) line.ratio = ratio;
  line.aim = too_few ? kTooFew : aim_text(aim, ratio);
}

}  // namespace

Row speed_row(std::string what, std::string name, std::string label,
              std::vector<std::string> against, Aim aim) {
  return [=](const Results& results) -> std::optional<Line> {
    const std::optional<Measured> measured = results.find(name);
    const std::optional<Measured> other = results.fastest(against);
    if (!measured) return missing_line(results, what, name);
    const bool too_few = results.too_few(name) || results.too_few(against);
    Line line{what, speed_text(*measured), "", std::nullopt,
              too_few ? kTooFew : ""};
    if (other) {
      line.against =
          label + " " + speed_text(*other) + variant_text(other->name);
      judge(line,
            measured->gigabytes_per_second() / other->gigabytes_per_second(),
            aim, too_few);
    }
    return line;
  };
}

Row time_row(std::string what, std::string name, std::string label,
             std::string against, Aim aim) {
  return [=](const Results& results) -> std::optional<Line> {
    const std::optional<Measured> measured = results.find(name);
    const std::optional<Measured> other = results.find(against);
    if (!measured) return missing_line(results, what, name);
    const bool too_few = results.too_few(name) || results.too_few(against);
    Line line{what, time_text(measured->seconds), "", std::nullopt,
              too_few ? kTooFew : ""};
    if (other) {
      line.against = label + " " + time_text(other->seconds);
      judge(line, measured->seconds / other->seconds, aim, too_few);
    }
    return line;
  };
}

Row item_row(std::string what, std::string name, Aim aim) {
  return [=](const Results& results) -> std::optional<Line> {
    const std::optional<Measured> measured = results.find(name);
    if (!measured) return missing_line(results, what, name);
    const double nanoseconds = measured->seconds / measured->work.items * 1e9;
    return Line{what, fmt::format("{:.1f} ns a tensor", nanoseconds),
                speed_text(*measured), std::nullopt,
                results.too_few(name) ? kTooFew : aim_text(aim, nanoseconds)};
  };
}

}  // namespace swamp::bench
