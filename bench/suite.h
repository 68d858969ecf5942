// The suite: every case by name, and the rows of the table in the end.
#ifndef SWAMP_BENCH_SUITE_H_
#define SWAMP_BENCH_SUITE_H_

#include <benchmark/benchmark.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "bench/options.h"
#include "bench/results.h"

namespace swamp::bench {

struct Section {
  std::string title;
  std::vector<Row> rows;
};

class Suite {
 public:
  // Body is a case: what it prepares, and then `for (auto _ : state)`.
  using Body = std::function<void(benchmark::State&)>;

  explicit Suite(const Options& options) : options_(options) {}

  const Options& options() const { return options_; }
  bool quick() const { return options_.quick; }
  Results& results() { return results_; }
  const std::vector<Section>& sections() const { return sections_; }

  // add() registers a case that runs on `threads`, once: a second one of that
  // name is the same case, and is left out.
  void add(const std::string& name, int threads, const Work& work, Body body);

  void section(std::string title) {
    sections_.push_back({std::move(title), {}});
  }
  void row(Row row) { sections_.back().rows.push_back(std::move(row)); }

 private:
  Options options_;
  Results results_;
  std::vector<Section> sections_;
};

// The families. Each has one file, adds its cases and its rows.
void add_unscale(Suite& suite);
void add_passes(Suite& suite);
void add_lists(Suite& suite);
void add_scaling(Suite& suite);
void add_transfer(Suite& suite);
void add_checker(Suite& suite);
void add_spawn(Suite& suite);
// add_athread() goes on with the section of add_spawn().
void add_athread(Suite& suite);
void add_threshold(Suite& suite);
void add_tuning(Suite& suite);

// scale_roof(), read_roof() add the roof for an array of `bytes`, all its
// variants, and returns their names.
std::vector<std::string> scale_roof(Suite& suite, std::size_t bytes,
                                    int threads);
std::vector<std::string> read_roof(Suite& suite, std::size_t bytes,
                                   int threads);

// Sizes that lie in L1, L2, L3 of common CPUs, and in memory.
struct Size {
  std::string name;
  std::size_t bytes;
};
std::vector<Size> sizes(const Options& options);

// "/threads:2", the end of a case's name, and "2 threads" for people.
std::string threads_name(int threads);
std::string threads_text(int threads);

}  // namespace swamp::bench

#endif  // SWAMP_BENCH_SUITE_H_
