#include "master/cli/scan/report.h"

#include <fmt/format.h>

namespace swamp::cli {
namespace {

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

bool is_unsupported(const FileTensor& tensor) noexcept {
  return tensor.element.kind == Element::Kind::unsupported && tensor.count != 0;
}

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

std::string speed_text(std::uint64_t bytes, double seconds) {
  const double gigabytes = static_cast<double>(bytes) * 1e-9;
  return fmt::format("{:.3g} GB in {:.3g} s, {:.3g} GB/s", gigabytes, seconds,
                     seconds > 0 ? gigabytes / seconds : 0.0);
}

std::string printable(std::string text) {
  for (char& character : text) {
    const auto byte = static_cast<unsigned char>(character);
    if (byte < 0x20 || byte == 0x7f) character = '?';
  }
  return text;
}

}  // namespace swamp::cli
