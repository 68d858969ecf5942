// Properties of every operator (support/operators.h): the same bits on every
// machine and ISA, in place, and in the caller's floating-point environment;
// any LDM.
#include "support/operators.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cfenv>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "machines.h"
#include "slave/reference_table.h"
#include "support/ci.h"
#include "support/float_environment_scope.h"
#include "support/random.h"
#include "swamp/error.h"

namespace swamp::test {
namespace {

class Operators : public testing::TestWithParam<std::string> {
 protected:
  // for_each_case() calls body(case, call) for the cases of the row, after a
  // call on the default machine.
  template <class Body>
  static void for_each_case(
      Body body, const std::vector<OperatorCase>& cases = operator_cases()) {
    const std::size_t reports = runtime::report_count();
    for (const OperatorCase& one : cases) {
      if (one.operation != GetParam()) continue;
      static const MachineConfig plain = plain_machine().info().chosen;
      const bool needs_ldm =
          plain.transfer != "view" || plain.backend == "athread";
      if (needs_ldm && plain.ldm_bytes < one.ldm_bytes()) continue;
      SCOPED_TRACE(one.name());
      SeededCall call(one);
      call.run(plain_machine());
      body(one, call);
      if (HasFailure()) return;
    }
    EXPECT_EQ(runtime::report_count(), reports);
  }
};

// draw() returns a number below `limit` that depends on the case.
std::size_t draw(const OperatorCase& one, std::size_t limit) {
  return Random(std::hash<std::string>{}(one.name())).below(limit);
}

// samples() returns the cases; outside of CI a fifth of them, but with `all_lists`
// those of lists are complete.
std::vector<OperatorCase> samples(std::vector<OperatorCase> cases,
                                  bool all_lists) {
  const auto is_out = [&](const OperatorCase& one) {
    return !is_ci() && !(all_lists && one.is_list()) && draw(one, 5) != 0;
  };
  cases.erase(std::remove_if(cases.begin(), cases.end(), is_out), cases.end());
  return cases;
}

bool is_directed(const FloatEnvironment& environment) {
  return (environment.control & (kDown | kUp | kToZero)) != 0;
}

// They give one visit with one tile or several, and two visits. A case of rows
// runs on one of them, because there are many.
std::vector<MachineShape> shapes_of(const OperatorCase& one) {
  const std::size_t ldm = one.ldm_bytes();
  const MachineShape shapes[] = {{1, 3, ldm}, {1, 2, 4 * ldm}, {6, 64, ldm}};
  if (one.is_list()) return {std::begin(shapes), std::end(shapes)};
  return {shapes[draw(one, 3)]};
}

TEST_P(Operators, SameBitsOnEveryMachine) {
  static const std::vector<OperatorCase> some = samples(operator_cases(), true);
  const auto body = [](const OperatorCase& one, SeededCall& call) {
    const auto expected = call.results();
    on_machines(shapes_of(one), false, [&](Machine& machine) {
      call.run(machine);
      EXPECT_TRUE(call.gives(expected));
      if (!call.works_in_place()) return;
      call.run(machine, true);
      EXPECT_TRUE(call.gives(expected)) << "in place";
    });
  };
  for_each_case(body, some);
}

// Some small cases, each in one environment. Only lists and products have the
// same signs of zero everywhere in directed rounding modes.
TEST_P(Operators, CallersFloatEnvironmentReachesEverySlave) {
  for_each_case([](const OperatorCase& one, SeededCall& call) {
    const std::size_t drawn = draw(one, 8 * std::size(kFloatEnvironments));
    if (!one.is_small() || drawn % 8 != 0) return;
    const FloatEnvironment& environment = kFloatEnvironments[drawn / 8];
    if (is_directed(environment) && !one.is_list() &&
        one.operation.find("product") != 0) {
      return;
    }
    SCOPED_TRACE(environment.name);
    const auto plain = call.results();
    std::vector<std::vector<std::byte>> expected;
    {
      const ControlScope scope(environment.control);
      call.run(plain_machine());
      expected = call.results();
    }
    on_machines(shapes_of(one), false, [&](Machine& machine) {
      {
        const ControlScope scope(environment.control);
        call.run(machine);
      }
      EXPECT_TRUE(call.gives(expected));
      call.run(machine);
      EXPECT_TRUE(call.gives(plain)) << "after it";
    });
  });
}

// run_in() returns whether a call on a machine gives the expected bits; else it
// must be an error that has written nothing.
bool run_in(Machine& machine, SeededCall& call,
            const std::vector<std::vector<std::byte>>& expected,
            bool in_place = false) {
  SCOPED_TRACE(to_text(machine.info().chosen));
  try {
    call.run(machine, in_place);
    EXPECT_TRUE(call.gives(expected));
    return true;
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), SWAMP_UNSUPPORTED) << error.what();
    EXPECT_TRUE(call.is_untouched()) << error.what();
    return false;
  }
}

// make_isa_machines() makes one that runs the scalar references, and some of
// each ISA, scalar last: with little LDM, for pieces of rows and other panels,
// and then one that takes whole rows and has all hints.
constexpr std::size_t kLittleLdm[] = {64 * 1024, 24 * 1024, 8 * 1024, 3 * 1024};
constexpr std::size_t kOfIsa = std::size(kLittleLdm) + 1;
std::vector<std::unique_ptr<Machine>> make_isa_machines() {
  static const KernelTable references{"reference", [] { return true; },
                                      slave::reference::reference_rows()};
  std::vector<std::unique_ptr<Machine>> made;
  MachineConfig config;
  config.backend = "serial";
  config.core_groups = 1;
  config.slaves_per_group = 2;
  config.transfer = "view";
  made.push_back(make_machine(config));
  made[0]->impl().kernels = &references;
  for (const std::string& isa : plain_machine().info().isas) {
    config.isa = isa;
    config.transfer = "copy";
    for (const std::size_t bytes : kLittleLdm) {
      config.ldm_bytes = bytes;
      made.push_back(make_machine(config));
    }
    config.transfer = "view";
    made.push_back(make_machine(config));
    runtime::Tuning& tuning = made.back()->impl().tuning;
    tuning.prefetch_traffic_bytes = tuning.non_temporal_traffic_bytes = 0;
  }
  return made;
}

// Ordinary numbers also in other environments, in which they raise "invalid
// operation" only if the references do: a caller may have unmasked it. clang
// computes on unused lanes, and ignores the flags.
#ifdef __clang__
constexpr bool kKeepsFlags = false;
#else
constexpr bool kKeepsFlags = true;
#endif

TEST_P(Operators, BitsOfTheReferenceOnEveryIsa) {
  static const std::vector<std::unique_ptr<Machine>> machines =
      make_isa_machines();
  static const std::vector<OperatorCase> some = samples(edge_cases(), false);
  const auto is_valid = [] { return std::fetestexcept(FE_INVALID) == 0; };
  for_each_case(
      [&](const OperatorCase& one, SeededCall& call) {
        const bool is_ordinary = one.numbers == Numbers::ordinary;
        const FloatEnvironment& environment =
            kFloatEnvironments[draw(one, std::size(kFloatEnvironments))];
        const bool has_it =
            (is_ordinary && !is_directed(environment)) || one.is_directed();
        const ControlScope scope(has_it ? environment.control : 0);
        SCOPED_TRACE(has_it ? environment.name : "");
        call.run(one.has_reference() ? *machines[0] : *machines.back());
        const bool expects_valid = kKeepsFlags && is_ordinary && is_valid();
        const auto expected = call.results();
        const std::size_t drawn = draw(one, std::size(kLittleLdm));
        for (std::size_t i = 1; i < machines.size(); ++i) {
          const bool is_view = i % kOfIsa == 0;
          if (!is_view && i % kOfIsa != drawn + 1) continue;
          std::feclearexcept(FE_ALL_EXCEPT);
          EXPECT_TRUE(run_in(*machines[i], call, expected) || !is_view);
          EXPECT_TRUE(is_valid() || !expects_valid) << "invalid operation";
          if (call.works_in_place()) {
            run_in(*machines[i], call, expected, true);
          }
        }
      },
      some);
}

// Any LDM and any tile: the right bits, or an error that has written nothing.
TEST_P(Operators, LittleLdm) {
  static const std::vector<std::unique_ptr<Machine>> machines = [] {
    std::vector<std::unique_ptr<Machine>> made;
    Random random(85);
    for (std::size_t bytes = 1024; bytes < 300000 && made.size() < 48;
         bytes += 128 * (1 + random.below(bytes / 512))) {
      MachineConfig config;
      config.backend = "serial";
      config.transfer = made.size() % 2 == 0 ? "copy" : "check";
      config.core_groups = 1;
      config.slaves_per_group = 2;
      config.ldm_bytes = bytes;
      made.push_back(make_machine(config));
      const std::size_t tiles[] = {0, 1, 129, 1000, ~std::size_t{0} / 2};
      if (made.size() % 3 == 0) {
        made.back()->impl().tuning.tile_bytes = tiles[random.below(5)];
      }
    }
    return made;
  }();
  std::size_t tried = 0, right = 0;
  for_each_case([&](const OperatorCase& one, SeededCall& call) {
    if (!one.is_small()) return;
    const auto expected = call.results();
    // The last machines often have more than it needs, and the last one always.
    for (const std::size_t i :
         {draw(one, machines.size()), draw(one, machines.size() / 2),
          machines.size() - 1}) {
      ++tried;
      right += run_in(*machines[i], call, expected) ? 1 : 0;
    }
  });
  EXPECT_EQ(right == 0, tried == 0);
}

std::vector<std::string> operations() {
  std::vector<std::string> names;
  for (const OperatorCase& one : edge_cases()) {
    if (std::find(names.begin(), names.end(), one.operation) == names.end()) {
      names.push_back(one.operation);
    }
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, Operators, testing::ValuesIn(operations()),
                         [](const testing::TestParamInfo<std::string>& it) {
                           return it.param;
                         });

}  // namespace
}  // namespace swamp::test
