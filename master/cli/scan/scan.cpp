// `swamp scan`: finds inf and nan in files of tensors.
#include "swamp/scan.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <memory>
#include <unordered_set>

#include "master/cli/command.h"
#include "master/cli/json.h"
#include "master/cli/scan/scanner.h"
#include "master/cli/scan/tensor_file.h"
#include "master/cli/text.h"

namespace swamp::cli {
namespace {

// ScannedFile is a file and what was found in it.
struct ScannedFile {
  std::string path;
  std::vector<FileTensor> tensors;  // without their bytes
  std::vector<TensorStatistics> statistics;
  std::uint64_t bytes = 0;  // scanned
  double seconds = 0;
};

// ScanTotals is the sum over files.
struct ScanTotals {
  std::uint64_t files = 0;    // read to their end
  std::uint64_t errors = 0;   // lines on stderr
  std::uint64_t tensors = 0;  // with found, not scanned and clean ones
  std::uint64_t found = 0;    // with inf or nan
  std::uint64_t not_scanned = 0;
  std::uint64_t unsupported = 0;  // not scanned, and may hold inf or nan
  TensorStatistics sum;

  void add(const ScannedFile& file);
};

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

// kScanSchema is in every line, and grows if the meaning of a member changes.
constexpr int kScanSchema = 1;

void add_extremes(const TensorStatistics& found, Json& json) {
  const bool finite = found.finite_count() != 0;
  json["min"] = finite ? Json(found.min) : Json();
  json["max"] = finite ? Json(found.max) : Json();
  json["absmax"] = finite ? Json(found.absmax) : Json();
}

Json statistics_json(const FileTensor& tensor, const TensorStatistics& found) {
  Json json;
  json["count"] = tensor.count;
  const bool scanned = tensor.element.kind == Element::Kind::scanned;
  json["scanned"] = scanned;
  if (!scanned) {
    json["reason"] = why_not_scanned(tensor.element.kind);
    return json;
  }
  json["inf"] = found.inf_count;
  json["nan"] = found.nan_count;
  json["first"] = Json();
  if (found.non_finite_count() != 0) json["first"] = found.first_non_finite;
  add_extremes(found, json);
  return json;
}

// scan_json() is a line for every tensor.
std::string scan_json(const ScannedFile& file) {
  std::string lines;
  for (std::size_t i = 0; i < file.tensors.size(); ++i) {
    const FileTensor& tensor = file.tensors[i];
    Json json;
    json["schema"] = kScanSchema;
    json["file"] = file.path;
    json["name"] = tensor.name;
    json["dtype"] = tensor.element.name;
    json["shape"] = tensor.shape;
    json.update(statistics_json(tensor, file.statistics[i]));
    lines += json_line(json) + "\n";
  }
  return lines;
}

// scan_totals_json() is the last line of a scan.
std::string scan_totals_json(const ScanTotals& totals) {
  Json json;
  json["schema"] = kScanSchema;
  Json& sum = json["totals"];
  sum["files"] = totals.files;
  sum["errors"] = totals.errors;
  sum["tensors"] = totals.tensors;
  sum["found"] = totals.found;
  sum["not_scanned"] = totals.not_scanned;
  sum["unsupported"] = totals.unsupported;
  sum["count"] = totals.sum.count;
  sum["inf"] = totals.sum.inf_count;
  sum["nan"] = totals.sum.nan_count;
  add_extremes(totals.sum, sum);
  return json_line(json) + "\n";
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
    throw Failure(
        fmt::format("no tensor {}, expected it because the index lists it",
                    in_quotes(name)));
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
      file.path, in_quotes(first->name), first->element.name,
      count == 1 ? "" : fmt::format("; {} tensors are like that", count));
}

struct ScanOptions {
  std::vector<std::string> files;  // and folders
  bool all = false;
  bool json = false;
  bool recursive = false;
};

// run_scan() continues with the next file after an error.
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

}  // namespace

Run add_scan(CLI::App& command) {
  const auto options = std::make_shared<ScanOptions>();
  command
      .add_option("FILE", options->files,
                  "safetensors, *.index.json, npy or npz, or a folder of them")
      ->type_name("")
      ->required();
  command.add_flag("--all", options->all, "list clean tensors, too");
  command.add_flag("--json", options->json,
                   "print one JSON object per tensor, then the totals");
  command.add_flag("--recursive", options->recursive,
                   "also folders in folders");
  command.footer(
      "Lists every tensor that holds inf or nan: how many, the flat index (in\n"
      "C order) of the first, and the extremes of the finite elements; then\n"
      "one line per file. A complex number counts as two floats. Integers,\n"
      "booleans, text, float6 and float4 (which have no inf and nan) are "
      "listed,\n"
      "but not scanned. Headers are checked against the file: the tensors of "
      "a\n"
      "safetensors file must cover its buffer exactly.\n"
      "Exit code: 0 clean, 1 inf or nan found, 2 a bad file or option, or a\n"
      "tensor of a dtype that cannot be scanned. An error does not keep the\n"
      "other files from being scanned.");
  return [options](Machine& machine) {
    warn_of_unknown_variables();
    return run_scan(*options, machine);
  };
}

}  // namespace swamp::cli
