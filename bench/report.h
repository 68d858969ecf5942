// What a person sees: a header, the cases, the table.
#ifndef SWAMP_BENCH_REPORT_H_
#define SWAMP_BENCH_REPORT_H_

#include <benchmark/benchmark.h>

#include <string>
#include <utility>
#include <vector>

#include "bench/suite.h"

namespace swamp::bench {

// Facts are what a number is worth nothing without: CPU, threads, ISA, machine.
using Facts = std::vector<std::pair<std::string, std::string>>;
Facts machine_facts();

// Reporter collects every repetition, and prints a case as one line: its
// fastest repetition, which is what the table uses.
class Reporter : public benchmark::ConsoleReporter {
 public:
  Reporter(Suite& suite, Facts facts)
      : ConsoleReporter(OO_Tabular), suite_(suite), facts_(std::move(facts)) {}

  bool ReportContext(const Context& context) override;
  void ReportRuns(const std::vector<Run>& runs) override;
  int left_out() const { return left_out_; }

 private:
  int left_out_ = 0;
  Suite& suite_;
  Facts facts_;
};

// table_text() is the table; sections of which nothing ran are left out.
std::string table_text(const Suite& suite, const Results& results);

}  // namespace swamp::bench

#endif  // SWAMP_BENCH_REPORT_H_
