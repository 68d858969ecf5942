// transfer/ and checker/: what the transfer modes cost. tuning/: the numbers of
// runtime/tuning.h, each compared with its neighbours, to see whether it is
// right for this machine.
#include "bench/bench.h"
#include "runtime/tuning.h"

namespace swamp::bench {
namespace {

void run_transfer(State& state, const std::string& transfer, std::size_t bytes,
                  float inv_scale) {
  run_unscale(state, kept_machine(transfer, transfer_config(transfer)),
              {make_list(kDtypes[0], {bytes / 4})}, inv_scale);
}

// Tune is what a case changes in the tuning of its machine.
using Tune = std::function<void(runtime::Tuning&)>;

// add_tuning() registers a case whose machine has another tuning; `against` is
// the name of the case that has the default.
template <class Body>
void add_tuning(const std::string& name, const std::string& against,
                const std::vector<std::int64_t>& bytes,
                const std::vector<std::int64_t>& threads,
                const MachineConfig& config, const Tune& tune, Body body) {
  add({name, bytes, threads, against}, [=](State& state, const Run& run) {
    body(state, run, kept_machine(name, config, tune));
  });
}

void unscale_float32(State& state, const Run& run, Machine& machine) {
  run_unscale(state, machine, {make_list(kDtypes[0], {run.bytes / 4})},
              kFlipSign);
}

// Shorter lists are not prefetched.
template <class Body>
void add_prefetch(const std::string& pass, Body body) {
  const runtime::Tuning defaults;
  std::vector<std::int64_t> bytes;
  for (const std::int64_t b : sizes()) {
    if (b > static_cast<std::int64_t>(defaults.prefetch_traffic_bytes)) {
      bytes.push_back(b);
    }
  }
  const std::string name = "tuning/" + pass + "/prefetch:";
  const std::string tuned = name + std::to_string(defaults.prefetch_bytes);
  for (const std::uint32_t ahead :
       {0u, 128u, 256u, 512u, 1024u, 2048u, 4096u}) {
    add_tuning(
        name + std::to_string(ahead), tuned, bytes, thread_counts(),
        transfer_config("view"),
        [=](runtime::Tuning& t) { t.prefetch_bytes = ahead; }, body);
  }
}

void add_non_temporal(const std::string& pass) {
  std::vector<std::int64_t> bytes;
  for (std::size_t b = 2 * kMib; b <= memory_bytes(); b *= 2) {
    bytes.push_back(static_cast<std::int64_t>(b));
  }
  const std::string name = "tuning/" + pass + "/non_temporal:";
  for (const bool always : {false, true}) {
    add_tuning(
        name + std::to_string(always), name + "0", bytes, {all_threads()},
        transfer_config("view"),
        [=](runtime::Tuning& t) {
          t.non_temporal_traffic_bytes = always ? 0 : ~std::size_t{0};
        },
        [=](State& state, const Run& run, Machine& machine) {
          run_pass(state, pass, run.bytes, &machine);
        });
  }
}

void add_tile() {
  MachineConfig config = transfer_config("copy");
  config.backend = "serial";
  const std::string name = "tuning/transfer/tile:";
  const std::string tuned = name + std::to_string(runtime::Tuning{}.tile_bytes);
  for (std::size_t tile = 2 * kKib; tile <= 64 * kKib; tile *= 2) {
    add_tuning(
        name + std::to_string(tile), tuned, sizes(), {1}, config,
        [=](runtime::Tuning& t) { t.tile_bytes = tile; }, unscale_float32);
  }
}

}  // namespace

void register_transfer() {
  const std::vector<std::int64_t> in_memory{sizes().back()};
  for (const std::string transfer : {"view", "copy", "check"}) {
    add({"transfer/" + transfer,
         {kL2Bytes, in_memory.front()},
         thread_counts(),
         "transfer/view"},
        [=](State& state, const Run& run) {
          run_transfer(state, transfer, run.bytes, kFlipSign);
        });
  }
  for (const std::string transfer : {"copy", "check"}) {
    add({"checker/unscale_check_only/" + transfer, in_memory, thread_counts(),
         "checker/unscale_check_only/copy"},
        [=](State& state, const Run& run) {
          run_transfer(state, transfer, run.bytes, kOnlyCheck);
        });
    for (const std::string pass :
         {"norm/float32", "cast/float32_bfloat16", "accumulate/bfloat16",
          "step/adam/bfloat16_bfloat16"}) {
      add({"checker/" + pass + "/" + transfer, in_memory, thread_counts(),
           "checker/" + pass + "/copy"},
          [=](State& state, const Run& run) {
            run_pass(state, pass, run.bytes,
                     &kept_machine(transfer, transfer_config(transfer)));
          });
    }
  }
}

void register_tuning() {
  add_prefetch("unscale/float32", unscale_float32);
  for (const char* pass :
       {"norm/float32", "accumulate/bfloat16", "cast/bfloat16_float32",
        "step/adam/float32", "step/adam/bfloat16_bfloat16"}) {
    add_prefetch(pass, [=](State& state, const Run& run, Machine& machine) {
      run_pass(state, pass, run.bytes, &machine);
    });
  }
  for (const char* pass : {"cast/bfloat16_float32", "cast/float32_bfloat16",
                           "step/adam/bfloat16_bfloat16"}) {
    add_non_temporal(pass);
  }
  add_tile();
}

}  // namespace swamp::bench
