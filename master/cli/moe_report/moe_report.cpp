// `swamp moe-report`: the tokens of each expert, by layer and step.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>

#include "master/cli/command.h"
#include "master/cli/json.h"
#include "master/cli/scan/tensor_file.h"
#include "master/cli/text.h"
#include "master/cli/train/files.h"
#include "master/cli/train/log.h"

namespace swamp::cli {
namespace {

namespace fs = std::filesystem;
using Counts = std::vector<std::uint64_t>;
using Hot = std::vector<std::size_t>;  // numbers of experts

constexpr std::uint64_t kMost = std::uint64_t{1} << 53;  // exact as a double

// sum_of() throws Failure, which names `what`, if the sum is above kMost. Both
// terms are at most kMost.
std::uint64_t sum_of(const std::string& what, std::uint64_t a,
                     std::uint64_t b) {
  if (a + b <= kMost) return a + b;
  throw Failure(fmt::format("{}: got a sum of {} or more, expected at most {}",
                            what, a + b, kMost));
}

// Record is one step of one layer.
struct Record {
  Counts counts;
  std::optional<std::uint64_t> dropped;

  std::uint64_t tokens() const {
    std::uint64_t sum = 0;
    for (const std::uint64_t count : counts) sum = sum_of("counts", sum, count);
    return sum;
  }
};

using Layer = std::map<std::uint64_t, Record>;  // by step
using Layers = std::map<std::uint64_t, Layer>;  // by layer

struct ReportOptions {
  std::vector<std::string> files;
  std::size_t hot = 2;
  bool json = false;
  std::string plot;
};

void add(Layers& layers, std::uint64_t layer, std::uint64_t step,
         Record record) {
  const std::uint64_t tokens = record.tokens();
  if (record.dropped.value_or(0) > tokens) {
    throw Failure(
        fmt::format("dropped: got {}, expected at most {}, the sum of counts",
                    *record.dropped, tokens));
  }
  Layer& steps = layers[layer];
  if (!steps.empty() &&
      steps.begin()->second.counts.size() != record.counts.size()) {
    throw Failure(fmt::format(
        "counts: got {} experts, expected {}, as step {} of layer {} has",
        record.counts.size(), steps.begin()->second.counts.size(),
        steps.begin()->first, layer));
  }
  if (!steps.emplace(step, std::move(record)).second) {
    throw Failure(
        fmt::format("step: got {} of layer {} twice, expected each step once",
                    step, layer));
  }
}

// ---- JSON lines

std::uint64_t integer_of(const std::string& key, const Json& value) {
  if (value.is_number_unsigned() && value <= kMost) return value;
  throw Failure(fmt::format("{}: got {}, expected an integer from 0 to {}", key,
                            printable(json_line(value)), kMost));
}

void read_line(const std::string& line, Layers& layers) {
  const Json object = parse_json(line, 4);
  if (!object.is_object()) {
    throw Failure("got no JSON object, expected step, layer and counts");
  }
  const auto member = [&](const char* key) -> const Json& {
    return json_member(object, key, ", expected step, layer and counts");
  };
  const std::uint64_t step = integer_of("step", member("step"));
  const std::uint64_t layer = integer_of("layer", member("layer"));
  Record record;
  const Json& counts = member("counts");
  if (!counts.is_array() || counts.empty()) {
    throw Failure(fmt::format(
        "counts: got {}, expected an array with a number for each expert",
        printable(json_line(counts))));
  }
  for (std::size_t e = 0; e < counts.size(); ++e) {
    record.counts.push_back(
        integer_of(fmt::format("counts[{}]", e), counts[e]));
  }
  if (object.contains("dropped")) {
    record.dropped = integer_of("dropped", object["dropped"]);
  }
  add(layers, layer, step, std::move(record));
}

void read_lines(const std::string& path, Layers& layers) {
  const std::string text = read_text(path, 0);
  std::size_t number = 1;
  for (std::size_t at = 0; at < text.size(); ++number) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string line = text.substr(at, end - at);
    at = end + 1;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty()) continue;
    try {
      read_line(line, layers);
    } catch (const Failure& failure) {
      throw Failure(fmt::format("{}:{}: {}", path, number, failure.what()));
    }
  }
}

// ---- MindFormers' files

// Name is the numbers of "layer-N_STEP.npy".
struct Name {
  std::uint64_t layer, step;
};

std::optional<Name> name_of(const fs::path& path) {
  constexpr std::string_view kBefore = "layer-";
  const std::string stem = path.stem();
  const std::size_t middle = stem.find('_');
  if (path.extension() != ".npy" || stem.rfind(kBefore, 0) != 0 ||
      middle == std::string::npos) {
    return {};
  }
  std::uint64_t numbers[2] = {};
  const std::string texts[] = {
      stem.substr(kBefore.size(), middle - kBefore.size()),
      stem.substr(middle + 1)};
  for (int i = 0; i < 2; ++i) {
    if (texts[i].empty() || texts[i].size() > 15) return {};
    for (const char digit : texts[i]) {
      if (digit < '0' || digit > '9') return {};
      numbers[i] = numbers[i] * 10 + static_cast<std::uint64_t>(digit - '0');
    }
  }
  return Name{numbers[0], numbers[1]};
}

// element_of() is element i of an array of integers or floating-point numbers.
double element_of(const FileTensor& tensor, std::size_t i) {
  const Element& element = tensor.element;
  const auto bytes = static_cast<std::size_t>(element.part_bytes());
  const bool little = element.swapped != kLittleEndianMachine;
  std::uint64_t bits = 0;
  for (std::size_t b = 0; b < bytes; ++b) {
    const std::size_t at = little ? bytes - 1 - b : b;
    bits = bits << 8 | static_cast<unsigned char>(tensor.data[i * bytes + at]);
  }
  if (element.kind == Element::Kind::integer) {
    if (element.name.front() == 'u') return static_cast<double>(bits);
    const unsigned unused = 64 - 8 * static_cast<unsigned>(bytes);
    return static_cast<double>(static_cast<std::int64_t>(bits << unused) >>
                               unused);
  }
  if (element.type == kFloat16) {
    return static_cast<double>(
        float16_to_float(static_cast<std::uint16_t>(bits)));
  }
  if (element.type == kFloat32) {
    return static_cast<double>(
        float_from_bits(static_cast<std::uint32_t>(bits)));
  }
  double value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

void read_array(const std::string& path, const Name& name, Layers& layers) {
  try {
    const MappedFile file(path);
    MemoryStream stream(file.bytes());
    FileTensor tensor = read_npy(stream, "counts", file.bytes().size());
    tensor.data = file.bytes().substr(tensor.member_offset);
    const Element& element = tensor.element;
    const bool is_number =
        element.kind == Element::Kind::integer ||
        (element.kind == Element::Kind::scanned && element.parts == 1);
    if (!is_number || tensor.shape.size() != 1 || tensor.count == 0) {
      throw Failure(fmt::format(
          "counts: got {} {}, expected an array with a number for each expert",
          element.name, shape_text(tensor.shape)));
    }
    Record record;
    for (std::size_t e = 0; e < tensor.count; ++e) {
      const double value = element_of(tensor, e);
      if (!(value >= 0 && value <= static_cast<double>(kMost)) ||
          value != std::floor(value)) {
        throw Failure(
            fmt::format("counts[{}]: got {}, expected an integer from 0 to {}",
                        e, value, kMost));
      }
      record.counts.push_back(static_cast<std::uint64_t>(value));
    }
    file.check();
    add(layers, name.layer, name.step, std::move(record));
  } catch (const Failure& failure) {
    throw Failure(fmt::format("{}: {}", path, failure.what()));
  }
}

void read_folder(const std::string& path, Layers& layers) {
  std::vector<fs::path> found;
  std::error_code error;
  fs::directory_iterator entry(path, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    if (name_of(entry->path())) found.push_back(entry->path());
  }
  if (error) {
    throw Failure(fmt::format("{}: cannot be read: {}", path, error.message()));
  }
  if (found.empty()) {
    throw Failure(
        fmt::format("{}: got a folder without counts, expected "
                    "files of the names layer-N_STEP.npy",
                    path));
  }
  std::sort(found.begin(), found.end());
  for (const fs::path& file : found) read_array(file, *name_of(file), layers);
}

void read_argument(const std::string& path, Layers& layers) {
  std::error_code error;
  if (fs::is_directory(path, error)) return read_folder(path, layers);
  if (fs::path(path).extension() != ".npy") return read_lines(path, layers);
  const std::optional<Name> name = name_of(path);
  if (!name) {
    throw Failure(fmt::format(
        "{}: got this name, expected layer-N_STEP.npy, with the numbers of a "
        "layer and a step",
        path));
  }
  read_array(path, *name, layers);
}

// ---- Output

// imbalance() is the largest count divided by the mean; 1 without tokens.
double imbalance(const Counts& counts) {
  double sum = 0;
  std::uint64_t max = 0;
  for (const std::uint64_t count : counts) {
    sum += static_cast<double>(count);
    max = std::max(max, count);
  }
  if (max == 0) return 1;
  return static_cast<double>(max) * static_cast<double>(counts.size()) / sum;
}

// Summary is what is printed of a layer.
struct Summary {
  Counts tokens;               // of each expert, of all steps
  double imbalance = 0;        // mean of the steps
  double highest = 0;          // imbalance of a step ...
  std::uint64_t at = 0;        // ... which is this one
  std::uint64_t counted = 0;   // tokens of steps whose drops are known
  std::uint64_t dropped = 0;   // of these
  bool knows_dropped = false;  // whether there is such a step
  Hot hot, all_hot;            // of the last step and of all steps
};

// hottest() returns the experts of the highest counts, hottest first; of equal
// ones the lowest.
Hot hottest(const Counts& counts, std::size_t number) {
  Hot experts(counts.size());
  for (std::size_t e = 0; e < experts.size(); ++e) experts[e] = e;
  std::stable_sort(
      experts.begin(), experts.end(),
      [&](std::size_t a, std::size_t b) { return counts[a] > counts[b]; });
  experts.resize(std::min(number, experts.size()));
  return experts;
}

Summary summary_of(const Layer& layer, std::size_t hot) {
  Summary all;
  all.tokens.resize(layer.begin()->second.counts.size());
  for (const auto& [step, record] : layer) {
    for (std::size_t e = 0; e < all.tokens.size(); ++e) {
      all.tokens[e] += record.counts[e];
    }
    const double one = imbalance(record.counts);
    all.imbalance += one / static_cast<double>(layer.size());
    if (one > all.highest) {
      all.highest = one;
      all.at = step;
    }
    if (!record.dropped) continue;
    all.knows_dropped = true;
    all.counted += record.tokens();
    all.dropped += *record.dropped;
  }
  all.hot = hottest(layer.rbegin()->second.counts, hot);
  all.all_hot = hottest(all.tokens, hot);
  return all;
}

double drop_rate(const Summary& all) {
  return all.counted == 0 ? 0
                          : static_cast<double>(all.dropped) /
                                static_cast<double>(all.counted);
}

Json json_of(std::uint64_t number, const Layer& layer, const Summary& all) {
  Json object;
  object["layer"] = number;
  object["experts"] = all.tokens.size();
  object["steps"] = layer.size();
  object["first_step"] = layer.begin()->first;
  object["last_step"] = layer.rbegin()->first;
  object["tokens"] = all.tokens;
  object["imbalance"] = all.imbalance;
  object["last_imbalance"] = imbalance(layer.rbegin()->second.counts);
  object["highest_imbalance"] = all.highest;
  object["highest_imbalance_step"] = all.at;
  object["dropped"] = all.knows_dropped ? Json(all.dropped) : Json();
  object["drop_rate"] = all.knows_dropped ? Json(drop_rate(all)) : Json();
  object["hot"] = all.hot;
  object["all_hot"] = all.all_hot;
  return object;
}

std::string text_of(std::uint64_t number, const Layer& layer,
                    const Summary& all) {
  const auto& [last, record] = *layer.rbegin();
  std::string text =
      fmt::format("layer {}: {} expert{}, {} step{} ({} to {})\n", number,
                  all.tokens.size(), plural(all.tokens.size()), layer.size(),
                  plural(layer.size()), layer.begin()->first, last);
  std::vector<std::string> fields = {"  tokens by expert:"};
  for (std::size_t e = 0; e < all.tokens.size(); ++e) {
    fields.push_back(fmt::format("{}: {}", e, all.tokens[e]));
  }
  text += wrapped_fields(fields, 4) + "\n";
  text += fmt::format(
      "  imbalance (max / mean): {:.3f} on average, {:.3f} in step {}, at most "
      "{:.3f}\n    in step {}\n",
      all.imbalance, imbalance(record.counts), last, all.highest, all.at);
  if (all.knows_dropped) {
    text += fmt::format("  dropped: {} of {} tokens, {:.2f} %\n", all.dropped,
                        all.counted, 100 * drop_rate(all));
  }
  const auto add_hot = [&](const std::string& title, const Hot& experts,
                           const Counts& counts) {
    fields = {title};
    for (const std::size_t e : experts) {
      fields.push_back(fmt::format("{}: {}", e, counts[e]));
    }
    text += wrapped_fields(fields, 4) + "\n";
  };
  add_hot(fmt::format("  hot experts of step {}:", last), all.hot,
          record.counts);
  add_hot("  hot experts of all steps:", all.all_hot, all.tokens);
  return text;
}

// load() is an expert's count relative to the mean of its step; 0 without
// tokens.
double load(const Record& record, std::size_t expert) {
  const std::uint64_t tokens = record.tokens();
  if (tokens == 0) return 0;
  return static_cast<double>(record.counts[expert]) *
         static_cast<double>(record.counts.size()) /
         static_cast<double>(tokens);
}

// plot_script() is a heat map of load() for each layer, in the same colours.
// The script contains only numbers and constant texts.
std::string plot_script(const Layers& layers) {
  const std::size_t columns = layers.size() <= 3    ? 1
                              : layers.size() <= 12 ? 2
                                                    : 4;
  const std::size_t rows = (layers.size() + columns - 1) / columns;
  double highest = 1;
  for (const auto& [number, layer] : layers) {
    for (const auto& [step, record] : layer) {
      highest = std::max(highest, imbalance(record.counts));
    }
  }
  std::string script = fmt::format(
      "set multiplot layout {},{}\n"
      "set palette defined (0 '#f7fbff', 1 '#9ecae1', 2 '#2171b5', "
      "4 '#08306b')\n"
      "set cbrange [0:{:.3g}]\nset tics nomirror out textcolor '#333333'\n"
      "set border linecolor '#666666'\n"
      "set cblabel 'tokens / mean' textcolor '#333333'\n"
      "set xlabel 'step' textcolor '#333333'\n"
      "set ylabel 'expert' textcolor '#333333'\nunset key\n",
      rows, columns, highest);
  for (const auto& [number, layer] : layers) {
    const std::size_t experts = layer.begin()->second.counts.size();
    script += fmt::format("$layer{} << END\n", number);
    // gnuplot needs two rows and two columns: a single expert or step has two,
    // half as large.
    for (std::size_t e = 0; e < std::max<std::size_t>(2, experts); ++e) {
      for (const auto& [step, record] : layer) {
        const double value = load(record, std::min(e, experts - 1));
        script += fmt::format("{:.4g} ", value);
        if (layer.size() == 1) script += fmt::format("{:.4g} ", value);
      }
      script += '\n';
    }
    script += "END\n";
    // At most 8 steps have a label.
    std::string tics;
    const std::size_t every = (layer.size() + 7) / 8;
    std::size_t i = 0;
    for (const auto& [step, record] : layer) {
      if (i % every == 0) {
        tics += fmt::format("{}'{}' {}", tics.empty() ? "" : ", ", step, i);
      }
      ++i;
    }
    script += fmt::format(
        "set title 'layer {}' textcolor '#222222'\nset xtics ({})\n"
        "set xrange [-0.5:{}.5]\nset yrange [-0.5:{}.5]\n"
        "plot $layer{} matrix using {}:{}:3 with image\n",
        number, tics, layer.size() - 1, experts - 1, number,
        layer.size() == 1 ? "(0.5 * $1 - 0.25)" : "1",
        experts == 1 ? "(0.5 * $2 - 0.25)" : "2");
  }
  return script + "unset multiplot\n";
}

int run_report(const ReportOptions& options) {
  if (!options.plot.empty()) {
    plot_terminal(options.plot);  // checks the name
    for (const std::string& path : options.files) {
      refuse_same_files({{"FILE", path}, {"--plot", options.plot}});
    }
  }
  Layers layers;
  for (const std::string& path : options.files) read_argument(path, layers);
  if (layers.empty()) {
    throw Failure(fmt::format("{}: got no counts, expected at least one line",
                              options.files.front()));
  }
  for (const auto& [number, layer] : layers) {
    const std::string what = fmt::format("counts of layer {}", number);
    std::uint64_t sum = 0;
    for (const auto& [step, record] : layer) {
      sum = sum_of(what, sum, record.tokens());
    }
  }
  for (const auto& [number, layer] : layers) {
    const Summary all = summary_of(layer, options.hot);
    print(options.json ? json_line(json_of(number, layer, all)) + "\n"
                       : text_of(number, layer, all));
  }
  if (options.plot.empty()) return EXIT_SUCCESS;
  const NameLock lock({"--plot", options.plot}, options.plot);
  const std::string why_not = draw_plot(options.plot, plot_script(layers));
  if (!why_not.empty()) throw Failure(why_not);
  return EXIT_SUCCESS;
}

}  // namespace

Run add_moe_report(CLI::App& command) {
  const auto options = std::make_shared<ReportOptions>();
  command
      .add_option("FILE", options->files,
                  "JSON lines, layer-N_STEP.npy of MindFormers, or a folder of "
                  "these")
      ->type_name("")
      ->required();
  add_integer(command, "--hot", options->hot, 1, 1000000,
              "how many hot experts are named");
  command.add_flag("--json", options->json,
                   "print a line of JSON for each layer");
  add_text(command, "--plot", "PATH", "",
           "draw experts over steps as a .png or .svg (needs gnuplot)",
           [options](const std::string& path) { options->plot = path; });
  command.footer(
      "A line has the keys step, layer and counts (tokens of each expert, "
      "before\n"
      "dropping), and may have dropped (of these): "
      "swamp_torch.moe.write_counts()\n"
      "writes them. MindFormers' counts miss the last token of a group.\n"
      "Exit code: 0; 2 for a bad file or option.");
  return [options](Machine&) {
    warn_of_unknown_variables();
    return run_report(*options);
  };
}

}  // namespace swamp::cli
