// Machines that are made and destroyed while others are in use.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "runtime/machine_impl.h"
#include "support/operators.h"
#include "swamp/amp.h"
#include "swamp/error.h"
#include "swamp/foreach.h"

namespace swamp::test {
namespace {

MachineConfig config_of(const std::string& backend, const std::string& transfer,
                        std::uint32_t slaves) {
  MachineConfig config;
  config.backend = backend;
  config.transfer = transfer;
  config.slaves_per_group = slaves;
  config.ldm_bytes = 512 * 1024;  // enough for all operators
  return config;
}

std::unique_ptr<Machine> make(const std::string& backend,
                              const std::string& transfer,
                              std::uint32_t slaves) {
  auto machine =
      std::make_unique<Machine>(config_of(backend, transfer, slaves));
  machine->impl().tuning.spawn = {};
  return machine;
}

bool unscale_is_right(Machine& machine) {
  std::vector<float> values(30000, 8.0f);
  const Tensor tensors[] = {{values.data(), values.size(), kFloat32}};
  float found_inf = 0.0f;
  amp_foreach_non_finite_check_and_unscale_(tensors, found_inf, 0.5f, nullptr,
                                            &machine);
  return found_inf == 0.0f && values == std::vector<float>(30000, 4.0f);
}

TEST(MachinesTest, DestroyedWhileOthersWorkOnAnother) {
  const MachineInfo info = Machine().info();
  std::vector<std::unique_ptr<Machine>> shared;
  for (const std::string& backend : info.backends) {
    shared.push_back(make(backend, "copy", 4));
  }
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (unsigned round = 0; round < 6; ++round) {
        Machine& other = *shared[(t + round) % shared.size()];
        if (!unscale_is_right(other)) ++wrong;
        if (t % 2 == 0) continue;
        // Makes, uses and destroys one with another LDM size.
        const auto own =
            make(info.backends[(t + round) % info.backends.size()],
                 info.transfers[round % info.transfers.size()], 1 + round);
        if (!unscale_is_right(*own)) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

// Eight threads call all operators on one machine, each with its own arrays,
// and get errors between.
TEST(MachinesTest, OperatorsOfManyThreadsAtOnce) {
  const std::vector<const OperatorCase*> all = one_of_each();
  std::vector<std::vector<std::vector<std::byte>>> expected;
  Machine serial(config_of("serial", "view", 1));
  for (const OperatorCase* one : all) {
    SeededCall call(*one);
    call.run(serial);
    expected.push_back(call.results());
  }
  const MachineInfo info = Machine().info();
  std::vector<float> shared(10000, 1.0f);  // only read
  std::size_t round = 0;
  for (const std::string& backend : info.backends) {
    for (const std::string& transfer : info.transfers) {
      SCOPED_TRACE(backend + " " + transfer);
      const auto machine = make(backend, transfer, 4);
      std::atomic<int> wrong{0};
      std::vector<std::thread> threads;
      for (std::size_t t = 0; t < 8; ++t) {
        threads.emplace_back([&, t, round] {
          for (std::size_t i = (t + round) % 3; i < all.size(); i += 3) {
            SeededCall call(*all[i]);
            call.run(*machine, i % 2 == 0);
            if (!call.gives(expected[i])) ++wrong;
            if (foreach_norm(Tensor{shared.data(), shared.size(), kFloat32}, 1,
                             nullptr, nullptr, machine.get()) != 100) {
              ++wrong;
            }
            try {
              foreach_count_zeros(Tensor{nullptr, 1, kFloat32}, machine.get());
              ++wrong;
            } catch (const Error&) {
            }
          }
        });
      }
      for (std::thread& thread : threads) thread.join();
      EXPECT_EQ(wrong, 0);
      ++round;
    }
  }
}

// A thread's memory is still valid after its machine was destroyed.
TEST(MachinesTest, OneThreadManyMachines) {
  for (int round = 0; round < 50; ++round) {
    MachineConfig config;
    config.backend = "serial";
    config.transfer = round % 2 == 0 ? "copy" : "check";
    config.core_groups = 1 + static_cast<std::uint32_t>(round) % 3;
    config.ldm_bytes = std::size_t{2048} << round % 7;
    Machine machine(config);
    ASSERT_TRUE(unscale_is_right(machine)) << round;
  }
}

}  // namespace
}  // namespace swamp::test
