// `swamp scan`: finds inf and nan in files of tensors.
#include "master/cli/scan/scan.h"

#include <fmt/format.h>

#include <chrono>
#include <unordered_set>

#include "master/cli/command.h"
#include "master/cli/console.h"
#include "master/cli/json.h"
#include "master/cli/scan/file_list.h"
#include "master/cli/scan/mapped_file.h"
#include "master/cli/scan/scanner.h"

namespace swamp::cli {
namespace {

// printable() replaces control characters: names come from files.
std::string printable(std::string text) {
  for (char& character : text) {
    const auto byte = static_cast<unsigned char>(character);
    if (byte < 0x20 || byte == 0x7f) character = '?';
  }
  return text;
}

// speed_text() is "2.1 GB in 0.2 s, 10.5 GB/s".
std::string speed_text(std::uint64_t bytes, double seconds) {
  const double gigabytes = static_cast<double>(bytes) * 1e-9;
  return fmt::format("{:.3g} GB in {:.3g} s, {:.3g} GB/s", gigabytes, seconds,
                     seconds > 0 ? gigabytes / seconds : 0.0);
}

// is_unsupported() returns whether a tensor may hold inf or nan that swamp
// cannot find.
bool is_unsupported(const FileTensor& tensor) noexcept {
  return tensor.element.kind == Element::Kind::unsupported && tensor.count != 0;
}

std::string extremes(const TensorStatistics& found) {
  if (found.finite_count() == 0) return "";
  return fmt::format("  min {} max {} absmax {}", found.min, found.max,
                     found.absmax);
}

std::string tensor_text(const FileTensor& tensor,
                        const TensorStatistics& found) {
  std::string text = fmt::format("{}  {} {}", printable(tensor.name),
                                 tensor.element.name, shape_text(tensor.shape));
  if (tensor.element.kind != Element::Kind::scanned) {
    return fmt::format("{}  {}, not scanned\n", text,
                       why_not_scanned(tensor.element.kind));
  }
  text += fmt::format("  inf {} nan {}", found.inf_count, found.nan_count);
  if (found.non_finite_count() != 0) {
    text += fmt::format(" first {}", found.first_non_finite);
  }
  return text + extremes(found) + "\n";
}

const char* plural(std::size_t count) { return count == 1 ? "" : "s"; }

// file_text() is a line for every tensor that has inf or nan or is not scanned,
// with `all` for every one, and a line for the file.
std::string file_text(const ScannedFile& file, bool all) {
  std::string text;
  for (std::size_t i = 0; i < file.tensors.size(); ++i) {
    const FileTensor& tensor = file.tensors[i];
    const TensorStatistics& found = file.statistics[i];
    if (all || tensor.element.kind != Element::Kind::scanned ||
        found.non_finite_count() != 0) {
      text += tensor_text(tensor, found);
    }
  }
  ScanTotals totals;
  totals.add(file);
  const TensorStatistics& sum = totals.sum;
  text +=
      fmt::format("{}: {} tensor{}, {} with inf or nan", printable(file.path),
                  totals.tensors, plural(totals.tensors), totals.found);
  if (totals.not_scanned != 0) {
    text += fmt::format(", {} not scanned", totals.not_scanned);
  }
  text += fmt::format("; {} element{}, inf {} nan {}{}; {}\n", sum.count,
                      plural(sum.count), sum.inf_count, sum.nan_count,
                      extremes(sum), speed_text(file.bytes, file.seconds));
  return text;
}

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kProgressBytes = std::uint64_t{1} << 30;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// check_expected() throws Failure if a tensor that an index names is missing.
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

void ScanTotals::add(const ScannedFile& file) {
  ++files;
  tensors += file.tensors.size();
  for (std::size_t i = 0; i < file.tensors.size(); ++i) {
    const FileTensor& tensor = file.tensors[i];
    found += file.statistics[i].non_finite_count() != 0 ? 1 : 0;
    not_scanned += tensor.element.kind != Element::Kind::scanned ? 1 : 0;
    unsupported += is_unsupported(tensor) ? 1 : 0;
    sum.add(file.statistics[i]);
  }
}

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
