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
  switch (tensor.element.kind) {
    case Element::Kind::integer:
      return text + "  integer, not scanned\n";
    case Element::Kind::boolean:
      return text + "  boolean, not scanned\n";
    case Element::Kind::other:
      return text + "  not a float that swamp knows, not scanned\n";
    case Element::Kind::scanned:
      break;
  }
  text += fmt::format("  inf {} nan {}", found.inf_count, found.nan_count);
  if (found.non_finite_count() != 0) {
    text += fmt::format(" first {}", found.first_non_finite);
  }
  return text + extremes(found) + "\n";
}

const char* plural(std::size_t count) { return count == 1 ? "" : "s"; }

}  // namespace

std::string file_text(const ScannedFile& file, bool all) {
  std::string text;
  TensorStatistics sum;
  std::size_t dirty = 0;
  std::size_t skipped = 0;
  for (std::size_t i = 0; i < file.tensors.size(); ++i) {
    const FileTensor& tensor = file.tensors[i];
    const TensorStatistics& found = file.statistics[i];
    const bool scanned = tensor.element.kind == Element::Kind::scanned;
    const bool clean = found.non_finite_count() == 0;
    dirty += clean ? 0 : 1;
    skipped += scanned ? 0 : 1;
    sum.add(found);
    if (all || !scanned || !clean) text += tensor_text(tensor, found);
  }
  const std::size_t tensors = file.tensors.size();
  text += fmt::format("{}: {} tensor{}, {} with inf or nan",
                      printable(file.path), tensors, plural(tensors), dirty);
  if (skipped != 0) text += fmt::format(", {} not scanned", skipped);
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
