#include "bench/operator.h"

#include <map>
#include <memory>
#include <utility>

#include "bench/memory.h"
#include "bench/timed.h"
#include "swamp/amp.h"
#include "swamp/error.h"

namespace swamp::bench {
namespace {

constexpr std::size_t kLineBytes = 64;
constexpr std::size_t kDtypeBytes[] = {2, 2, 4, 8};  // by swamp_dtype

std::size_t tensor_bytes(const Dtype& dtype, std::size_t count) {
  return (count * dtype.bytes + kLineBytes - 1) / kLineBytes * kLineBytes;
}

}  // namespace

std::size_t list_bytes(const Dtype& dtype,
                       const std::vector<std::size_t>& counts) {
  std::size_t bytes = 0;
  for (const std::size_t count : counts) bytes += tensor_bytes(dtype, count);
  return bytes;
}

std::size_t element_bytes(const Dtype& dtype,
                          const std::vector<std::size_t>& counts) {
  std::size_t bytes = 0;
  for (const std::size_t count : counts) bytes += count * dtype.bytes;
  return bytes;
}

List make_list(const Dtype& dtype, const std::vector<std::size_t>& counts,
               std::size_t offset) {
  std::byte* at = shared_memory(offset + list_bytes(dtype, counts)) + offset;
  List list;
  list.reserve(counts.size());
  for (const std::size_t count : counts) {
    list.push_back({at, count, dtype.dtype});
    at += tensor_bytes(dtype, count);
  }
  return list;
}

swamp_machine* c_machine(int threads, const std::string& transfer) {
  struct Destroy {
    void operator()(swamp_machine* machine) const {
      swamp_machine_destroy(machine);
    }
  };
  static std::map<std::pair<std::string, std::string>,
                  std::unique_ptr<swamp_machine, Destroy>>
      machines;
  // The backend `threads` always has a thread for every slave.
  const bool serial =
      threads == 1 &&
      Machine::default_machine().info().chosen.backend == "threads";
  const std::string backend = serial ? "serial" : "";
  auto& machine = machines[{backend, transfer}];
  if (!machine) {
    swamp_config config{};
    config.struct_size = sizeof config;
    config.backend = backend.c_str();
    config.transfer = transfer.c_str();
    swamp_machine* made = nullptr;
    const swamp_status status = swamp_machine_create(&config, &made);
    if (status != SWAMP_OK) throw Error(status, swamp_last_error());
    machine.reset(made);
  }
  return machine.get();
}

namespace {

// timed_operator() calls the operator by call(found_inf), in batches.
template <class Call>
void timed_operator(benchmark::State& state, const List& list, Call call) {
  std::size_t bytes = 0;
  for (const swamp_tensor& tensor : list) {
    bytes += tensor.count * kDtypeBytes[tensor.dtype];
  }
  float found_inf = 0;
  timed(state, batch_of_bytes(bytes), [&] { call(found_inf); });
  if (found_inf != 0) state.SkipWithError("the shared memory is not finite");
}

}  // namespace

void run_operator(benchmark::State& state, swamp_machine* machine,
                  const List& list, float inv_scale) {
  timed_operator(state, list, [&](float& found_inf) {
    const swamp_status status = swamp_amp_foreach_non_finite_check_and_unscale(
        machine, list.data(), list.size(), &found_inf, &inv_scale);
    if (status != SWAMP_OK) state.SkipWithError(swamp_last_error());
  });
}

void run_operator(benchmark::State& state, Machine& machine, const List& list,
                  float inv_scale) {
  timed_operator(state, list, [&](float& found_inf) {
    amp_foreach_non_finite_check_and_unscale_(list, found_inf, inv_scale,
                                              nullptr, &machine);
  });
}

void run_operator(benchmark::State& state, Machine& machine,
                  const std::vector<List>& lists, float inv_scale) {
  std::size_t next = 0;
  timed_operator(state, lists.front(), [&](float& found_inf) {
    amp_foreach_non_finite_check_and_unscale_(lists[next], found_inf, inv_scale,
                                              nullptr, &machine);
    next = next + 1 == lists.size() ? 0 : next + 1;
  });
}

}  // namespace swamp::bench
