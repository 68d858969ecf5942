#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/cli/run_program.h"

namespace swamp::test {
namespace {

using nlohmann::json;

json info(const Environment& environment = {}) {
  const ProgramResult result = run_program({"info", "--json"}, environment);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  EXPECT_EQ(lines_of(result.out).size(), 1u);
  return json::parse(result.out);
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
  for (const char* text : {"version", "compiler", "cpu", "topology"}) {
    EXPECT_NE(object.at(text).get<std::string>(), "") << text;
  }
  EXPECT_EQ("swamp " + object.at("version").get<std::string>() + "\n",
            run_program({"--version"}).out);
}

TEST(Info, WhatIsChosenIsAvailable) {
  const json object = info();
  for (const char* field : {"machine", "backend", "transfer", "isa", "bind"}) {
    const json& available = object.at("available").at(field);
    EXPECT_TRUE(holds(available, object.at(field))) << field;
  }
  EXPECT_TRUE(holds(object.at("available").at("backend"), "serial"));
  EXPECT_TRUE(holds(object.at("available").at("isa"), "scalar"));
}

TEST(Info, JsonFollowsTheEnvironment) {
  const json pro = info({{"SWAMP_MACHINE", "sw26010pro"}});
  EXPECT_EQ(pro.at("machine"), "sw26010pro");
  EXPECT_EQ(pro.at("core_groups"), 6);
  EXPECT_EQ(pro.at("slaves_per_group"), 64);

  const json own = info({{"SWAMP_BACKEND", "serial"},
                         {"SWAMP_TRANSFER", "copy"},
                         {"SWAMP_CORE_GROUPS", "3"},
                         {"SWAMP_SLAVES_PER_GROUP", "5"},
                         {"SWAMP_LDM_BYTES", "65536"},
                         {"SWAMP_ISA", "scalar"},
                         {"SWAMP_BIND", "core"}});
  EXPECT_EQ(own.at("backend"), "serial");
  EXPECT_EQ(own.at("transfer"), "copy");
  EXPECT_EQ(own.at("core_groups"), 3);
  EXPECT_EQ(own.at("slaves_per_group"), 5);
  EXPECT_EQ(own.at("ldm_bytes"), 65536);
  EXPECT_EQ(own.at("isa"), "scalar");
  EXPECT_EQ(own.at("bind"), "core");
}

TEST(Info, TextSaysTheSame) {
  const Environment environment = {{"SWAMP_MACHINE", "sw26010"},
                                   {"SWAMP_BACKEND", "serial"}};
  const ProgramResult result = run_program({"info"}, environment);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  const json object = info(environment);
  const auto has_line = [&](const std::string& name, const std::string& value) {
    for (const std::string& line : lines_of(result.out)) {
      if (line.rfind(name, 0) == 0 &&
          line.compare(18, value.size(), value) == 0)
        return true;
    }
    return false;
  };
  EXPECT_TRUE(has_line("machine", "sw26010 ")) << result.out;
  EXPECT_TRUE(has_line("core groups", "4")) << result.out;
  EXPECT_TRUE(has_line("slaves per group", "64")) << result.out;
  EXPECT_TRUE(has_line("backend", "serial ")) << result.out;
  EXPECT_TRUE(has_line("ISA", object.at("isa"))) << result.out;
  EXPECT_TRUE(has_line("cpu", object.at("cpu"))) << result.out;
  EXPECT_TRUE(has_line("swamp", object.at("version"))) << result.out;
}

}  // namespace
}  // namespace swamp::test
