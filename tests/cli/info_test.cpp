#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

#include "runtime/variables.h"
#include "support/errors.h"
#include "tests/cli/run_program.h"

namespace swamp::test {
namespace {

using nlohmann::json;

json info(const Environment& environment = {}) {
  const std::string line = output_of("info --json", environment);
  EXPECT_EQ(lines_of(line).size(), 1u);
  return json::parse(line);
}

bool holds(const json& list, const std::string& value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

TEST(Info, JsonHasTheDefaults) {
  const json object = info();
  EXPECT_EQ(object.at("machine"), "host");
  EXPECT_EQ(object.at("transfer"), "view");
  EXPECT_EQ(object.at("bind"), "none");
  EXPECT_EQ(object.at("ldm_bytes"), 262144);
  for (const char* count :
       {"core_groups", "slaves_per_group", "cores", "threads"}) {
    EXPECT_GE(object.at(count).get<int>(), 1) << count;
  }
  for (const char* text :
       {"version", "compiler", "cpu", "topology", "products"}) {
    EXPECT_NE(object.at(text).get<std::string>(), "") << text;
  }
  EXPECT_EQ("swamp " + object.at("version").get<std::string>() + "\n",
            run_program("--version").out);
}

TEST(Info, ChosenValuesAreAvailable) {
  const json object = info();
  for (const char* field : {"machine", "backend", "transfer", "isa", "bind"}) {
    const json& available = object.at("available").at(field);
    EXPECT_TRUE(holds(available, object.at(field))) << field;
  }
  EXPECT_TRUE(holds(object.at("available").at("backend"), "serial"));
  EXPECT_TRUE(holds(object.at("available").at("isa"), "scalar"));
}

// tests/api/environment_test.cpp has all variables.
TEST(Info, JsonFollowsTheEnvironment) {
  const json pro = info({{"SWAMP_MACHINE", "sw26010pro"},
                         {"SWAMP_TRANSFER", "copy"},
                         {"SWAMP_SLAVES_PER_GROUP", "5"}});
  EXPECT_EQ(pro.at("machine"), "sw26010pro");
  EXPECT_EQ(pro.at("transfer"), "copy");
  EXPECT_EQ(pro.at("core_groups"), 6);
  EXPECT_EQ(pro.at("slaves_per_group"), 5);
}

TEST(Info, TextHasTheSameValues) {
  const Environment environment = {{"SWAMP_MACHINE", "sw26010"},
                                   {"SWAMP_BACKEND", "serial"}};
  const std::string text = output_of("info", environment);
  const json object = info(environment);
  const auto has_line = [&](const std::string& name, const std::string& value) {
    for (const std::string& line : lines_of(text)) {
      if (line.rfind(name, 0) == 0 &&
          line.compare(18, value.size(), value) == 0)
        return true;
    }
    return false;
  };
  EXPECT_TRUE(has_line("machine", "sw26010 ")) << text;
  EXPECT_TRUE(has_line("core groups", "4")) << text;
  EXPECT_TRUE(has_line("slaves per group", "64")) << text;
  EXPECT_TRUE(has_line("backend", "serial ")) << text;
  EXPECT_TRUE(has_line("ISA", object.at("isa"))) << text;
  EXPECT_TRUE(has_line("cpu", object.at("cpu"))) << text;
  EXPECT_TRUE(has_line("swamp", object.at("version"))) << text;
}

TEST(Info, UnknownVariablesAreOneWarningAndAField) {
  const struct {
    const char* name;
    const char* text;  // "": not reported
  } rows[] = {
      {"SWAMP_TRANSFR", "SWAMP_TRANSFR (did you mean SWAMP_TRANSFER?)"},
      {"SWAMP_BAKCEND", "SWAMP_BAKCEND (did you mean SWAMP_BACKEND?)"},
      {"SWAMP_CORES", "SWAMP_CORES"},
      {"SWAMP_SLAVES", "SWAMP_SLAVES (did you mean SWAMP_SLAVES_PER_GROUP?)"},
      {"SWAMP_", "SWAMP_"},
      {"SWAMP_ENTIRELY_DIFFERENT", "SWAMP_ENTIRELY_DIFFERENT"},
      {"SWAMP_TORCH_PYTHON", ""},
      {"SWAMP_CHECK_SEED", ""},
      {"SWAMPY", ""}};
  for (const auto& [name, text] : rows) {
    const std::string shown = text;
    const Environment environment = {{name, "1"}};
    const ProgramResult object = run_program("info --json", environment);
    EXPECT_EQ(object.exit_code, 0);
    EXPECT_EQ(object.err, shown.empty()
                              ? ""
                              : "swamp: warning: environment: got " + shown +
                                    ", expected variables that swamp knows\n");
    EXPECT_EQ(json::parse(object.out).at("unknown_variables"),
              shown.empty() ? json::array() : json::array({shown}));
    EXPECT_TRUE(has_words(
        run_program("info", environment).out,
        {"\nunknown variables " + (shown.empty() ? "none" : shown) + "\n"}));
    const TemporaryFile text_file(kShortText);
    EXPECT_EQ(
        run_program({"train", text_file.path(), "--steps", "1"}, environment)
            .err,
        object.err);
  }
}

TEST(Info, AnEmptyVariableIsUnset) {
  EXPECT_EQ(info({{"SWAMP_TRANSFR", ""}}).at("unknown_variables"),
            json::array());
}

// On a busy host, threads that spin take much processor time.
TEST(Info, ThreadsSpinBrieflyUnlessTheUserSaysOtherwise) {
  for (const auto& [setting, count] :
       {std::pair("NONE=", "1000"),
        {"GOMP_SPINCOUNT=5", "5"},
        {"OMP_WAIT_POLICY=passive", "0"},
        {"OMP_WAIT_POLICY=active", "30000000000"}}) {
    const ProgramResult result = run_command(
        {"/usr/bin/env", "-u", "OMP_WAIT_POLICY", "-u", "GOMP_SPINCOUNT",
         "OMP_DISPLAY_ENV=verbose", setting, kProgram, "info"});
    EXPECT_EQ(result.exit_code, 0) << setting;
    if (result.err.find("GOMP_SPINCOUNT") == std::string::npos) {
      GTEST_SKIP() << "not libgomp";
    }
    EXPECT_TRUE(has_words(result.err,
                          {"GOMP_SPINCOUNT = '" + std::string(count) + "'\n"}))
        << setting;
  }
}

// names_in() adds what a source reads of the environment: in C++ and Python a
// quoted name, in a script $NAME or ${NAME}, in CMake ENV{NAME}.
void names_in(const std::filesystem::path& path, std::set<std::string>& names) {
  const std::string suffix = path.extension();
  const bool quoted = suffix == ".cpp" || suffix == ".h" || suffix == ".py";
  if (!quoted && suffix != "" && suffix != ".cmake") return;
  if (path.filename() == "variables.h") return;
  const std::string text = read_file(path);
  const std::string before = quoted ? "\"" : suffix == ".cmake" ? "ENV{" : "$";
  const auto ends_with = [&](std::size_t end, const std::string& part) {
    return end >= part.size() &&
           text.compare(end - part.size(), part.size(), part) == 0;
  };
  for (std::size_t begin = text.find("SWAMP_"); begin != std::string::npos;
       begin = text.find("SWAMP_", begin + 1)) {
    if (!ends_with(begin, before) && !(before == "$" && ends_with(begin, "${")))
      continue;
    const std::size_t end =
        text.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ_", begin);
    if (end == begin + std::strlen("SWAMP_")) continue;  // a prefix
    if (quoted && (end == std::string::npos || text[end] != '"')) continue;
    names.insert(text.substr(begin, end - begin));
  }
}

TEST(Info, KnownVariablesAreThoseOfTheSources) {
  std::set<std::string> found;
  for (const char* folder :
       {"master", "runtime", "toolchain", "bench", ".ci"}) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(
             std::filesystem::path(SWAMP_GOLDEN_DIR) / "../.." / folder)) {
      if (entry.is_regular_file()) names_in(entry.path(), found);
    }
  }
  EXPECT_EQ(found, std::set<std::string>(std::begin(runtime::kVariables),
                                         std::end(runtime::kVariables)));
}

}  // namespace
}  // namespace swamp::test
