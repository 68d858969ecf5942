// What the readers of scan say to a file that is in memory.
#ifndef SWAMP_TESTS_CLI_SCAN_REFUSAL_H_
#define SWAMP_TESTS_CLI_SCAN_REFUSAL_H_

#include <gtest/gtest.h>

#include <string>

#include "master/cli/command.h"
#include "master/cli/scan/tensor_file.h"

namespace swamp::test {

// refusal() is what the reader of `format` says to `file`, "" where it reads
// all of it.
inline std::string refusal(cli::FileFormat format, const std::string& file) {
  try {
    for (const cli::FileTensor& tensor : cli::read_tensors(format, file)) {
      const auto stream = cli::open_stream(tensor);
      while (!stream->next(1 << 16).empty()) {
      }
    }
  } catch (const cli::Failure& failure) {
    return failure.what();
  }
  return "";
}

inline void expect_refusal(cli::FileFormat format, const std::string& file,
                           const std::string& words) {
  const std::string text = refusal(format, file);
  EXPECT_NE(text.find(words), std::string::npos)
      << "'" << words << "' is not in '" << text << "'";
  EXPECT_LT(text.size(), 2000u);
}

}  // namespace swamp::test

#endif  // SWAMP_TESTS_CLI_SCAN_REFUSAL_H_
