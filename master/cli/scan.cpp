// swamp scan: inf and nan in files of tensors.
#include <fmt/format.h>

#include <chrono>
#include <unordered_set>

#include "master/cli/command.h"
#include "master/cli/console.h"
#include "master/cli/json.h"
#include "master/cli/scan/file_list.h"
#include "master/cli/scan/mapped_file.h"
#include "master/cli/scan/report.h"
#include "master/cli/scan/scanner.h"

namespace swamp::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kProgressBytes = std::uint64_t{1} << 30;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void check_expected(const std::vector<FileTensor>& tensors,
                    const std::vector<std::string>& expected) {
  std::unordered_set<std::string> names;
  for (const FileTensor& tensor : tensors) names.insert(tensor.name);
  for (const std::string& name : expected) {
    if (names.count(name) != 0) continue;
    throw Failure(fmt::format(
        "no tensor {}, expected it because the index says so", quoted(name)));
  }
}

ScannedFile scan_file(const ScanFile& input, Machine& machine) {
  const Clock::time_point start = Clock::now();
  const MappedFile file(input.path);
  const std::uint64_t total = file.bytes().size();
  ScannedFile scanned;
  scanned.path = input.path;
  try {
    scanned.tensors = read_tensors(input.format, file.bytes());
  } catch (const Failure&) {
    file.check();  // a file that changed explains any other error
    throw;
  }
  check_expected(scanned.tensors, input.expected);
  Progress progress;
  Scanner scanner(machine, [&](std::uint64_t bytes) {
    if (total <= kProgressBytes) return;
    progress.show(fmt::format(
        "{}: {:.0f} %, {}", printable(input.path),
        100.0 * static_cast<double>(bytes) / static_cast<double>(total),
        speed_text(bytes, seconds_since(start))));
  });
  try {
    scanned.statistics = scanner.scan(scanned.tensors);
  } catch (const Failure&) {
    file.check();
    throw;
  }
  file.check();
  for (FileTensor& tensor : scanned.tensors) {  // they refer to `file`
    tensor.data = {};
    tensor.member = nullptr;
  }
  scanned.bytes = scanner.bytes();
  scanned.seconds = seconds_since(start);
  return scanned;
}

// unsupported_text() is an error that names the first unsupported tensor of a
// file, "" if there is none.
std::string unsupported_text(const ScannedFile& file) {
  const FileTensor* first = nullptr;
  std::size_t count = 0;
  for (const FileTensor& tensor : file.tensors) {
    if (!is_unsupported(tensor)) continue;
    if (++count == 1) first = &tensor;
  }
  if (count == 0) return "";
  return fmt::format(
      "{}: tensor {}: got dtype {}, expected one that swamp can scan{}",
      file.path, quoted(first->name), first->element.name,
      count == 1 ? "" : fmt::format("; {} tensors are like that", count));
}

}  // namespace

int run_scan(const ScanOptions& options, Machine& machine) {
  ScanTotals totals;
  const auto complain = [&](const std::string& text) {
    print_error("swamp: " + text);
    ++totals.errors;
  };
  for (const ScanFile& input :
       list_files(options.files, options.recursive, complain)) {
    ScannedFile file;
    try {
      file = scan_file(input, machine);
    } catch (const Failure& failure) {
      complain(fmt::format("{}: {}", input.path, failure.what()));
      continue;
    } catch (const std::bad_alloc&) {
      complain(fmt::format("{}: out of memory", input.path));
      continue;
    }
    totals.add(file);
    print(options.json ? scan_json(file) : file_text(file, options.all));
    const std::string unsupported = unsupported_text(file);
    if (!unsupported.empty()) complain(unsupported);
  }
  if (options.json) print(scan_totals_json(totals));
  if (totals.errors != 0) return kExitFailure;
  return totals.found != 0 ? kExitFound : 0;
}

}  // namespace swamp::cli
