// swcc: the compiler driver of the emulated Sunway machine.
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "toolchain/sunway/swcc/actions.h"
#include "toolchain/sunway/swcc/options.h"
#include "toolchain/sunway/swcc/subprocess.h"

int main(int argc, char** argv) {
  const std::string name = std::filesystem::path(argv[0]).filename().string();
  if (!swcc::tool(name).empty()) {
    swcc::Words command{swcc::tool(name)};
    command.insert(command.end(), argv + 1, argv + argc);
    swcc::become(command);
  }
  const swcc::Words words = swcc::expanded({argv + 1, argv + argc});
  for (const std::string& word : words) {
    if (word == "--help") {
      std::fputs(swcc::usage().c_str(), stdout);
      return 0;
    }
  }
  swcc::Options options = swcc::read_options(name, words);
  if (words.empty()) swcc::fail("no input files; see --help");
  if (swcc::makes_objects(options)) swcc::read_standard_input(options);
  setenv("LC_ALL", "C", 1);  // swcc reads gcc's messages
  switch (options.action) {
    case swcc::Options::Action::pass: {
      swcc::Words command{swcc::compiler(options)};
      command.insert(command.end(), options.rest.begin(), options.rest.end());
      command.insert(command.end(), options.inputs.begin(),
                     options.inputs.end());
      swcc::become(command);
    }
    case swcc::Options::Action::compile:
      swcc::compile(options);
      break;
    case swcc::Options::Action::link:
      swcc::link(options);
      break;
  }
  return 0;
}
