// unscale/, check/, list/ and scaling/: the operator
// amp_foreach_non_finite_check_and_unscale_, mostly through the C ABI.
#include "bench/bench.h"
#include "master/cli/predict/predict.h"

namespace swamp::bench {
namespace {

// One large tensor. inv_scale == 1 only reads.
void add_tensor(const std::string& family, const Dtype& dtype, float inv_scale,
                const std::string& roofline) {
  add({family + "/" + dtype.name, sizes(), thread_counts(), roofline},
      [=](State& state, const Run& run) {
        run_unscale(state, make_list(dtype, {run.bytes / dtype.bytes}),
                    inv_scale);
      });
}

struct Shape {
  std::string name;
  Counts counts;
};

std::vector<Shape> shapes() {
  const std::vector<std::uint64_t> gpt2 = cli::model_counts("gpt2-small");
  return {{"10000x16", Counts(10000, 16)},
          {"1000x100", Counts(1000, 100)},
          {"1000x10000", Counts(1000, 10000)},
          {"148x100000", Counts(148, 100000)},
          {"gpt2", Counts(gpt2.begin(), gpt2.end())}};
}

// A list as an optimizer passes it. Small tensors show the cost of a tensor,
// large ones are compared with the roofline.
void add_list(const std::string& name, const Counts& counts,
              const Dtype& dtype) {
  if (list_bytes(dtype, counts) > memory_bytes()) return;
  constexpr std::size_t kSmallCount = 4096;
  const bool small = counts.front() <= kSmallCount;
  add({name,
       {},
       thread_counts(),
       small ? "" : "roofline/scale/bytes:" + std::to_string(memory_bytes())},
      [=](State& state, const Run&) {
        run_unscale(state, make_list(dtype, counts), kFlipSign);
        if (small) {
          state.SetItemsProcessed(static_cast<std::int64_t>(counts.size()) *
                                  state.iterations());
        }
      });
}

// The operator's time by threads, by bytes, by tensors and by logical slaves.
void add_scaling() {
  std::vector<std::int64_t> threads;
  for (int i = 1; i <= all_threads(); ++i) threads.push_back(i);
  const auto one_tensor = [](State& state, const Run& run) {
    run_unscale(state, make_list(kDtypes[0], {run.bytes / 4}), kFlipSign);
  };
  add({"scaling/memory", {sizes().back()}, threads, "scaling/memory/threads:1"},
      one_tensor);
  std::vector<std::int64_t> bytes;
  for (std::size_t b = kKib; b <= memory_bytes(); b *= 4) {
    bytes.push_back(static_cast<std::int64_t>(b));
  }
  add({"scaling", bytes, thread_counts(), ""}, one_tensor);
  for (std::size_t tensors = 1; tensors <= 1000000; tensors *= 10) {
    add_list("scaling/tensors:" + std::to_string(tensors), Counts(tensors, 16),
             kDtypes[0]);
  }
  // The threads are the same; only the partition and the results grow.
  const Counts counts(1000, 10000);
  if (list_bytes(kDtypes[0], counts) > memory_bytes()) return;
  for (const std::uint32_t slaves : {2u, 8u, 64u, 384u}) {
    const std::string name = "scaling/slaves:" + std::to_string(slaves);
    add({name, {}, {all_threads()}, "scaling/slaves:2"},
        [=](State& state, const Run&) {
          MachineConfig config;
          config.core_groups = slaves > 64 ? slaves / 64 : 1;
          config.slaves_per_group = std::min(slaves, 64u);
          run_unscale(state, kept_machine(name, config),
                      {make_list(kDtypes[0], counts)}, kFlipSign);
        });
  }
}

}  // namespace

void register_unscale() {
  for (const Dtype& dtype : kDtypes) {
    add_tensor("unscale", dtype, kFlipSign, "roofline/scale");
  }
  for (const Dtype& dtype : kDtypes) {
    add_tensor("check", dtype, kOnlyCheck, "roofline/read");
  }
  for (const Shape& shape : shapes()) {
    for (const Dtype& dtype : kDtypes) {
      if (dtype.dtype == kFloat64) continue;  // models are not trained in it
      add_list("list/" + shape.name + "/" + dtype.name, shape.counts, dtype);
    }
  }
  add_scaling();
}

}  // namespace swamp::bench
