#ifndef SWAMP_MASTER_CLI_REPLAY_OPTIONS_H_
#define SWAMP_MASTER_CLI_REPLAY_OPTIONS_H_

#include <string>
#include <vector>

namespace swamp::cli {

struct ReplayOptions {
  std::vector<std::string> files;
  bool check = false;
};

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_REPLAY_OPTIONS_H_
