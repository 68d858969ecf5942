// claims/: long launches whose slaves are claimed by threads, compared with
// fixed shares, on a quiet machine and beside a thread that keeps one CPU busy.
#include <atomic>
#include <limits>
#include <memory>
#include <thread>

#include "bench/bench.h"
#include "runtime/machine_impl.h"
#include "swamp/rows.h"

namespace swamp::bench {
namespace {

// BusyThread computes on the last CPU of the process until it is destroyed.
class BusyThread {
 public:
  BusyThread() : thread_([this] { spin(); }) {}
  ~BusyThread() {
    stop_ = true;
    thread_.join();
  }
  BusyThread(const BusyThread&) = delete;
  BusyThread& operator=(const BusyThread&) = delete;

 private:
  void spin() const {
    runtime::Topology last;
    last.core_pus = {runtime::allowed_pus().back()};
    runtime::bind_this_thread(last, 0, 1);
    while (!stop_) {
    }
  }
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// Body measures an operator on a machine.
using Body = std::function<void(State& state, Machine& machine)>;

void add_cases(const std::string& name, const Body& body) {
  for (const char* load : {"quiet", "busy"}) {
    const std::string loaded = "claims/" + name + "/" + load;
    for (const bool claims : {false, true}) {
      add({loaded + (claims ? "/claims" : "/shares"),
           {},
           {},
           claims ? loaded + "/shares" : ""},
          [=](State& state, const Run&) {
            std::unique_ptr<BusyThread> busy;
            if (load[0] == 'b') busy = std::make_unique<BusyThread>();
            body(state,
                 kept_machine(claims ? "claims" : "shares", {},
                              [=](runtime::Tuning& tuning) {
                                if (claims) return;
                                tuning.claim_traffic_bytes =
                                    std::numeric_limits<std::size_t>::max();
                              }));
          });
    }
  }
}

// A product of bfloat16 matrices.
void add_product(const char* name, const ProductShape& shape) {
  const std::size_t bytes = 2 * shape.elements();
  if (bytes > memory_bytes()) return;
  add_cases(std::string("product_") + name, [=](State& state, Machine& on) {
    const ProductArrays arrays =
        product_arrays(scratch_memory(bytes), shape, kBFloat16);
    timed(state, static_cast<double>(bytes),
          [&] { product(arrays.out, arrays.a, arrays.b, {}, &on); });
  });
}

void add_softmax(std::size_t bytes) {
  add_cases("softmax/bytes:" + std::to_string(bytes),
            [=](State& state, Machine& on) {
              constexpr std::size_t kColumns = 1024;
              const std::size_t rows = bytes / 2 / (2 * kColumns);
              std::byte* const memory = scratch_memory(bytes);
              const Matrix x{memory, rows, kColumns, kBFloat16},
                  y{memory + bytes / 2, rows, kColumns, kBFloat16};
              timed(state, static_cast<double>(bytes),
                    [&] { scaled_softmax(x, y, {}, &on); });
            });
}

void add_adam(std::size_t bytes) {
  add_cases("adam/bytes:" + std::to_string(bytes),
            [=](State& state, Machine& on) {
              run_pass(state, "step/adam/float32", bytes, &on);
            });
}

}  // namespace

void register_claims() {
  if (all_threads() == 1) return;  // no other thread claims
  add_product("mlp", {1, 8192, 3072, 768, false, true});
  add_product("forward", {1, 1024, 3072, 768, false, true});
  add_product("logits", {1, 512, 50304, 768, false, true});
  add_product("heads", {48, 1024, 1024, 64, false, true});
  for (const std::size_t bytes : {memory_bytes() / 8, memory_bytes()}) {
    add_softmax(bytes);
    add_adam(bytes);
  }
}

}  // namespace swamp::bench
