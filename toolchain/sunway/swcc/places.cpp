#include "toolchain/sunway/swcc/places.h"

#include <filesystem>

#include "toolchain/sunway/swcc/options.h"

namespace swcc {
namespace {

namespace fs = std::filesystem;

Places find() {
  std::error_code error;
  const fs::path here = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (const char* folder : {"lib", SWCC_LIBRARY_FOLDER}) {
    const fs::path library = here.parent_path() / folder;
    const fs::path include = library / "swamp" / "sunway" / "include";
    if (fs::exists(include / "athread.h", error) &&
        fs::exists(library / "libswamp_sunway.so", error)) {
      return {include.string(), library.string()};
    }
  }
  fail("cannot find its headers and libswamp_sunway.so beside " +
       here.string());
}

}  // namespace

const Places& places() {
  static const Places found = find();
  return found;
}

}  // namespace swcc
