// What was measured, and how a line of the table is made of it.
#ifndef SWAMP_BENCH_RESULTS_H_
#define SWAMP_BENCH_RESULTS_H_

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace swamp::bench {

// Work is what one iteration of a case does.
struct Work {
  double bytes = 0;  // read and written
  double items = 0;  // tensors of a list
};

// Measured is the fastest repetition of a case: noise only ever adds time.
struct Measured {
  std::string name;
  double seconds = 0;  // an iteration
  Work work;
  double gigabytes_per_second() const { return work.bytes / seconds * 1e-9; }
};

class Results {
 public:
  void declare(const std::string& name, const Work& work) {
    work_[name] = work;
  }
  bool declared(const std::string& name) const {
    return work_.count(name) != 0;
  }
  void add(const std::string& name, double seconds);
  // leave_out() is a repetition for which no time was left.
  void leave_out(const std::string& name) { ++left_out_[name]; }

  // find() is empty for what did not run.
  std::optional<Measured> find(const std::string& name) const;
  // too_few() is a case that was cut short with so few repetitions that its
  // fastest one says nothing; fewer that were asked for are the caller's
  // choice.
  bool too_few(const std::string& name) const;
  bool too_few(const std::vector<std::string>& names) const;
  // fastest() of some cases that do the same work.
  std::optional<Measured> fastest(const std::vector<std::string>& names) const;

 private:
  std::map<std::string, Work> work_;
  std::map<std::string, double> seconds_;
  std::map<std::string, int> taken_;
  std::map<std::string, int> left_out_;
};

// Aim is what a ratio, or a figure, should reach.
struct Aim {
  enum Kind { none, at_least, at_most } kind = none;
  double value = 0;
};

// Line of the table.
struct Line {
  std::string what;
  std::string measured;
  std::string against;
  std::optional<double> ratio;
  std::string aim;  // "", ">= 0.90 ok" or kTooFew
};

inline constexpr const char* kTooFew = "(too few)";

// Row makes a line, or nothing when one of its cases did not run.
using Row = std::function<std::optional<Line>(const Results&)>;

std::string time_text(double seconds);
std::string bytes_text(double bytes);  // "96 KiB"
std::string aim_text(const Aim& aim, double value);

// speed_row() compares bytes per second with the fastest of `against`: 1 is as
// fast, less is slower. `label` names them in the table.
Row speed_row(std::string what, std::string name, std::string label,
              std::vector<std::string> against, Aim aim = {});
// time_row() compares times: 1 is as fast, more is slower. `against` may be "".
Row time_row(std::string what, std::string name, std::string label,
             std::string against, Aim aim = {});
// item_row() shows the time of an item, which is what the aim is about.
Row item_row(std::string what, std::string name, Aim aim = {});

}  // namespace swamp::bench

#endif  // SWAMP_BENCH_RESULTS_H_
