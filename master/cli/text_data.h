#ifndef SWAMP_MASTER_CLI_TEXT_DATA_H_
#define SWAMP_MASTER_CLI_TEXT_DATA_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "master/cli/random.h"

namespace swamp::cli {

// kContext is how many bytes the model sees to guess the next one.
inline constexpr std::size_t kContext = 16;

// read_text() returns the bytes of a regular file that holds at least one
// example; throws Failure for anything else.
std::string read_text(const std::string& path);

// Batch is examples: kContext bytes of context and one target each.
struct Batch {
  std::vector<std::uint8_t> contexts;
  std::vector<std::uint8_t> targets;
};

// sample_batch() fills `batch` with `count` examples from random places.
void sample_batch(const std::string& text, std::size_t count, Random& random,
                  Batch& batch);

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_TEXT_DATA_H_
