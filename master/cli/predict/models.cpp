// The parameters of some models, by their shapes: the lists of bench/peers.
#include <initializer_list>

#include "master/cli/predict/predict.h"

namespace swamp::cli {
namespace {

using Counts = std::vector<std::uint64_t>;

void append(Counts& counts, std::initializer_list<std::uint64_t> more) {
  counts.insert(counts.end(), more);
}

Counts gpt2_small() {
  constexpr std::uint64_t kWidth = 768;
  Counts counts{50257 * kWidth, 1024 * kWidth};
  for (int layer = 0; layer < 12; ++layer) {
    append(counts, {kWidth, kWidth});                   // ln_1
    append(counts, {kWidth * 3 * kWidth, 3 * kWidth});  // attn.c_attn
    append(counts, {kWidth * kWidth, kWidth});          // attn.c_proj
    append(counts, {kWidth, kWidth});                   // ln_2
    append(counts, {kWidth * 4 * kWidth, 4 * kWidth});  // mlp.c_fc
    append(counts, {4 * kWidth * kWidth, kWidth});      // mlp.c_proj
  }
  append(counts, {kWidth, kWidth});  // ln_f
  return counts;
}

Counts bert_base() {
  constexpr std::uint64_t kWidth = 768;
  // Words, positions, kinds of token, and their norm.
  Counts counts{30522 * kWidth, 512 * kWidth, 2 * kWidth, kWidth, kWidth};
  for (int layer = 0; layer < 12; ++layer) {
    for (int matrix = 0; matrix < 4; ++matrix) {  // query, key, value, output
      append(counts, {kWidth * kWidth, kWidth});
    }
    append(counts, {kWidth, kWidth});  // LayerNorm
    append(counts, {4 * kWidth * kWidth, 4 * kWidth});
    append(counts, {4 * kWidth * kWidth, kWidth});
    append(counts, {kWidth, kWidth});  // LayerNorm
  }
  append(counts, {kWidth * kWidth, kWidth});  // the pooler
  return counts;
}

Counts resnet50() {
  Counts counts{64 * 3 * 49, 64, 64};
  // A convolution and the two parameters of its norm.
  const auto add = [&](std::uint64_t weights, std::uint64_t channels) {
    append(counts, {weights * channels, channels, channels});
  };
  struct Stage {
    int blocks;
    std::uint64_t width;
  };
  std::uint64_t inputs = 64;
  for (const Stage stage : {Stage{3, 64}, {4, 128}, {6, 256}, {3, 512}}) {
    for (int block = 0; block < stage.blocks; ++block) {
      add(inputs, stage.width);
      add(9 * stage.width, stage.width);
      add(stage.width, 4 * stage.width);
      if (block == 0) add(inputs, 4 * stage.width);  // the shortcut
      inputs = 4 * stage.width;
    }
  }
  append(counts, {2048 * 1000, 1000});
  return counts;
}

struct Model {
  const char* name;
  Counts (*counts)();
};
constexpr Model kModels[] = {{"gpt2-small", gpt2_small},
                             {"bert-base", bert_base},
                             {"resnet50", resnet50}};

}  // namespace

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const Model& model : kModels) names.emplace_back(model.name);
  return names;
}

std::vector<std::uint64_t> model_counts(const std::string& name) {
  for (const Model& model : kModels) {
    if (name == model.name) return model.counts();
  }
  return {};
}

}  // namespace swamp::cli
