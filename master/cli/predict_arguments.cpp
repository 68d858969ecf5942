#include "master/cli/predict_arguments.h"

#include "master/cli/comma_list.h"
#include "master/cli/command.h"
#include "master/cli/option_adder.h"
#include "master/cli/predict/models.h"
#include "master/cli/predict/operations.h"

namespace swamp::cli {
namespace {

constexpr std::uint64_t kMostCoreGroups = 6;
constexpr std::uint64_t kLeastTile = 128;
constexpr std::uint64_t kMostTile = std::uint64_t{1} << 30;
constexpr std::uint64_t kMostAlign = 4096;
constexpr std::size_t kMostValues = 64;

// integers() reads "1,2,3".
std::vector<std::uint64_t> integers(const std::string& option,
                                    const std::string& text, std::uint64_t low,
                                    std::uint64_t high) {
  std::vector<std::uint64_t> values;
  for_each_item(text, [&](const std::string& item) {
    values.push_back(parse_integer(option, item, low, high));
  });
  if (values.size() > kMostValues) {
    throw UsageError(fmt::format("{}: got {} values, expected at most {}",
                                 option, values.size(), kMostValues));
  }
  return values;
}

}  // namespace

void add_predict_options(CLI::App* predict, PredictOptions& options) {
  OptionAdder add(predict);
  const auto text = [&](const char* name, const char* type, std::string& value,
                        const std::string& help) {
    add.text(
        name, type, value, help.c_str(),
        [name, &value](const std::string& given) {
          if (given.empty()) {
            throw UsageError(fmt::format("{}: got '', expected a value", name));
          }
          value = given;
        });
  };
  predict
      ->add_option("FILE", options.files,
                   "the float tensors of safetensors, npy or npz files")
      ->type_name("");
  text("--operation", "NAME", options.operation,
       fmt::format("{}", fmt::join(operation_names(), ", ")));
  text("--list", "LIST", options.list,
       fmt::format("1x33554432,148x100000 (tensors x elements), {}",
                   fmt::join(model_names(), ", ")));
  text("--dtype", "NAME", options.dtype,
       "of the tensors, of a step's gradients; else the file's, or float32");
  text("--to", "NAME", options.to,
       "dtype that a cast makes, or of the weights a step also writes");
  text("--machine", "NAME", options.machine, "sw26010pro or sw26010");
  add.text("--core-groups", "N,...", "all", "how many work; several: a table",
           [&](const std::string& given) {
             options.core_groups =
                 integers("--core-groups", given, 1, kMostCoreGroups);
           });
  add.text("--tile", "BYTES,...", "the machine's",
           "tile of the widest array; several: a table",
           [&](const std::string& given) {
             options.tiles = integers("--tile", given, kLeastTile, kMostTile);
           });
  add.text("--align", "BYTES", fmt::to_string(options.align),
           "every tensor begins at a multiple of this, a power of 2",
           [&](const std::string& given) {
             const std::uint64_t align =
                 parse_integer("--align", given, 1, kMostAlign);
             if ((align & (align - 1)) != 0) {
               throw UsageError(fmt::format(
                   "--align: got '{}', expected a power of 2", given));
             }
             options.align = align;
           });
  add.integer("--offset", options.offset, 0, 127,
              "bytes that this lies behind a 128-byte line");
  add.flag("--json", options.json, "print one JSON object a prediction");
  add.flag("--table", options.table,
           "print the model beside every measured point instead");
  predict->footer(
      "Runs the operation's plan and tile loop on arrays that are not there,\n"
      "counts requests, bytes and 128-byte lines as SW26010-Pro's counters "
      "do,\n"
      "and says what the transfers would take: overlapped, where a slave has\n"
      "the next under way while it waits, and one after another. "
      "SWAMP_LDM_BYTES\n"
      "is obeyed. Times are at SW26010-Pro's costs for either machine.\n"
      "Exit code: 0; 2 for a bad file or option.");
}

}  // namespace swamp::cli
