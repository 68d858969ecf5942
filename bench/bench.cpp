// One mapping serves all cases, so that the roofline and the operators use the
// same pages; it is filled with 1.0f by the threads that will use it, and again
// after a case that left other values.
#include "bench/bench.h"

#include <sys/mman.h>

#include <map>
#include <memory>
#include <new>

#include "runtime/machine_impl.h"
#include "swamp/amp.h"
#include "swamp/c_api.h"

namespace swamp::bench {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kLineBytes = 64;

std::size_t round_up(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

// Reserves addresses for the largest case; pages are allocated when they are
// first written. OperandArrays needs some more than the bytes of its arrays.
std::byte* reserve() {
  void* const address =
      mmap(nullptr, memory_bytes() + kMib, PROT_READ | PROT_WRITE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) throw std::bad_alloc();
  return static_cast<std::byte*>(address);
}

std::byte* base() {
  static std::byte* const address = reserve();
  return address;
}

// Fills [begin, end) by the threads that will use it: a page lies on the NUMA
// node of the thread that first writes it.
void fill(std::size_t begin, std::size_t end) {
  auto* const floats = reinterpret_cast<float*>(base() + begin);
  for_each_part(all_threads(), (end - begin) / sizeof(float),
                kPage / sizeof(float), [&](std::size_t from, std::size_t to) {
                  std::fill(floats + from, floats + to, 1.0f);
                });
}

std::size_t filled = 0;
std::size_t dirty = 0;  // bytes at the front that hold other values

// ThreadsScope sets the caller's number of threads during one case.
struct ThreadsScope {
  explicit ThreadsScope(int threads) { set_threads(threads); }
  ~ThreadsScope() { set_threads(all_threads()); }
};

}  // namespace

std::vector<std::int64_t> sizes() {
  return {16 * kKib, kL2Bytes, 8 * kMib,
          static_cast<std::int64_t>(memory_bytes())};
}

std::byte* shared_memory(std::size_t bytes) {
  if (dirty > 0) fill(0, dirty);
  dirty = 0;
  const std::size_t end = round_up(bytes, kPage);
  if (end > memory_bytes() + kMib) throw std::bad_alloc();
  if (end > filled) {
    fill(filled, end);
    filled = end;
  }
  return base();
}

std::byte* scratch_memory(std::size_t bytes) {
  std::byte* const memory = shared_memory(bytes);
  dirty = round_up(bytes, kPage);
  return memory;
}

int all_threads() {
  static const int all = max_threads();
  return all;
}

std::vector<std::int64_t> thread_counts() {
  static const bool obeys =
      Machine::default_machine().info().chosen.backend == "openmp";
  if (all_threads() == 1 || !obeys) return {all_threads()};
  return {1, all_threads()};
}

void add(const Case& what, std::function<void(State&, const Run&)> body) {
  const bool sized = !what.bytes.empty();
  const bool threaded = !what.threads.empty();
  auto* const made = benchmark::RegisterBenchmark(
      what.name.c_str(), [sized, threaded, against = what.against,
                          body = std::move(body)](State& state) {
        const Run run{
            sized ? static_cast<std::size_t>(state.range(0)) : 0,
            threaded ? static_cast<int>(state.range(sized)) : all_threads()};
        const ThreadsScope scope(run.threads);
        state.SetLabel(against);
        body(state, run);
      });
  made->UseRealTime();
  std::vector<std::string> names;
  std::vector<std::vector<std::int64_t>> values;
  if (sized) {
    names.emplace_back("bytes");
    values.push_back(what.bytes);
  }
  if (threaded) {
    names.emplace_back("threads");
    values.push_back(what.threads);
  }
  if (!names.empty()) made->ArgNames(names)->ArgsProduct(values);
}

std::size_t list_bytes(const Dtype& dtype, const Counts& counts) {
  std::size_t bytes = 0;
  for (const std::size_t count : counts) {
    bytes += round_up(count * dtype.bytes, kLineBytes);
  }
  return bytes;
}

std::size_t element_bytes(const Dtype& dtype, const Counts& counts) {
  std::size_t bytes = 0;
  for (const std::size_t count : counts) bytes += count * dtype.bytes;
  return bytes;
}

List make_list(const Dtype& dtype, const Counts& counts, std::size_t offset) {
  std::byte* at = shared_memory(offset + list_bytes(dtype, counts)) + offset;
  List list;
  list.reserve(counts.size());
  for (const std::size_t count : counts) {
    list.push_back({at, count, dtype.dtype});
    at += round_up(count * dtype.bytes, kLineBytes);
  }
  return list;
}

Machine& kept_machine(const std::string& key, const MachineConfig& config,
                      const std::function<void(runtime::Tuning&)>& tune) {
  static std::map<std::string, std::unique_ptr<Machine>> machines;
  std::unique_ptr<Machine>& machine = machines[key];
  if (!machine) {
    machine = std::make_unique<Machine>(config);
    if (tune) tune(machine->impl().tuning);
  }
  return *machine;
}

MachineConfig transfer_config(const std::string& transfer) {
  MachineConfig config;
  config.transfer = transfer;
  return config;
}

namespace {

// Calls the operator by call(found_inf).
template <class Call>
void timed_unscale(State& state, const List& list, float inv_scale, Call call) {
  std::size_t bytes = 0;
  for (const Tensor& tensor : list) {
    for (const Dtype& dtype : kDtypes) {
      if (dtype.dtype == tensor.dtype) bytes += tensor.count * dtype.bytes;
    }
  }
  float found_inf = 0;
  const double passes = inv_scale == kOnlyCheck ? 1 : 2;  // it only reads
  timed(state, passes * static_cast<double>(bytes), [&] { call(found_inf); });
  if (found_inf != 0) state.SkipWithError("the shared memory is not finite");
}

}  // namespace

void run_unscale(State& state, const List& list, float inv_scale) {
  timed_unscale(state, list, inv_scale, [&](float& found_inf) {
    const swamp_status status = swamp_amp_foreach_non_finite_check_and_unscale(
        nullptr, list.data(), list.size(), &found_inf, &inv_scale);
    if (status != SWAMP_OK) state.SkipWithError(swamp_last_error());
  });
}

void run_unscale(State& state, Machine& machine, const std::vector<List>& lists,
                 float inv_scale) {
  std::size_t next = 0;
  timed_unscale(state, lists.front(), inv_scale, [&](float& found_inf) {
    amp_foreach_non_finite_check_and_unscale_(lists[next], found_inf, inv_scale,
                                              nullptr, &machine);
    next = next + 1 == lists.size() ? 0 : next + 1;
  });
}

}  // namespace swamp::bench
