// Mutations of good files, given to the readers and the scanner in this
// process: each is read or refused, and nothing else happens, as far as the
// sanitizers can tell. Run by hand for longer: swamp_scan_mutation_test CASES
// [SEED].
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <iterator>
#include <sstream>

#include "master/cli/command.h"
#include "master/cli/scan/scanner.h"
#include "master/cli/scan/tensor_file.h"
#include "support/random.h"
#include "tests/cli/scan_files.h"

namespace swamp::test {
namespace {

enum class Kind { safetensors, npy, npz, index };
struct Seed {
  Kind kind;
  std::string file;
};

std::vector<Seed> seeds() {
  const std::string floats(64, '\x7f');
  const std::string f4 = npy("<f4", "(4, 4)", floats, true);
  ZipEntry in64 = stored("c.npy", f4);
  in64.zip64 = true;
  std::vector<Seed> all = {
      {Kind::safetensors,
       safetensors(
           R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F16","shape":[2,4],)"
           R"("data_offsets":[0,16]},"b":{"dtype":"F8_E4M3","shape":[3],)"
           R"("data_offsets":[16,19]},"c":{"dtype":"F64","shape":[5],)"
           R"("data_offsets":[19,59],"x":[{}]},"d":{"dtype":"BOOL","shape":[5],)"
           R"("data_offsets":[59,64]}})",
           floats)},
      {Kind::npy, f4},
      {Kind::npy, npy(">f8", "(2, 2, 2)", floats, true, 2)},
      {Kind::npy, npy("<f2", "(32,)", floats, false, 3)},
      {Kind::npy, npy(">c8", "(4, 2)", floats, true)},
      {Kind::index,
       R"({"metadata":{"total_size":9},"weight_map":{"a":"x","b":"d/y"}})"}};
  if (kReadsNpz) {
    all.push_back(
        {Kind::npz, zip({stored("a.npy", f4), deflated("b.npy", f4)})});
    all.push_back(
        {Kind::npz, zip({in64, deflated("d.npy", npy("|O", "(1,)", floats))})});
  }
  return all;
}

// kWords are written into files, because random bytes would never contain them.
const std::vector<std::string>& words() {
  static const std::vector<std::string> all = [] {
    std::istringstream text(
        "18446744073709551615 18446744073709551616 -1 0 1e999 [ { } ] \" ' F64 "
        "F8_E5M2 I64 <f4 >f8 |V2 True ( ) , : null __metadata__ .. / PK\1\2 "
        "PK\3\4 PK\5\6");
    std::vector<std::string> made(std::istream_iterator<std::string>(text), {});
    for (const auto& [count, character] :
         {std::pair{8, '\xff'}, {4, '\xff'}, {4, '\0'}, {300, '['}}) {
      made.emplace_back(count, character);
    }
    return made;
  }();
  return all;
}

void mutate(std::string& file, const std::string& other, Random& random) {
  const std::size_t at = random.below(file.size() + 1);
  const std::size_t count = random.below(file.size() - at + 1);
  switch (random.below(9)) {
    case 0:
      if (at < file.size()) {
        file[at] = static_cast<char>(static_cast<unsigned char>(file[at]) ^
                                     (1u << random.below(8)));
      }
      break;
    case 1:
      if (at < file.size()) file[at] = static_cast<char>(random.next());
      break;
    case 2:
      file.resize(at);
      break;
    case 3:
      file.erase(at, count % 16);
      break;
    case 4:
      file.insert(at, file, random.below(file.size() + 1), count % 64);
      break;
    case 5:
      file.insert(at, words()[random.below(words().size())]);
      break;
    case 6: {
      const std::string& word = words()[random.below(words().size())];
      file.replace(at, std::min(word.size(), file.size() - at), word);
      break;
    }
    case 7:  // adds a small number, also to sizes
      if (at < file.size()) {
        file[at] =
            static_cast<char>(file[at] + (random.next() % 2 == 0 ? 1 : -1));
      }
      break;
    default:
      file.replace(at, count, other, random.below(other.size()), count);
  }
}

// run_case() reads and scans a file. Returns whether it was good.
bool run_case(Kind kind, const std::string& content, Machine& machine) {
  // Memory of exactly the file's size, so that a read one byte too far is
  // detected.
  const auto memory = std::make_unique<char[]>(content.size());
  std::memcpy(memory.get(), content.data(), content.size());
  const cli::Bytes file(memory.get(), content.size());
  try {
    if (kind == Kind::index) {
      cli::read_index(file);
      return true;
    }
    const auto format = kind == Kind::safetensors ? cli::FileFormat::safetensors
                        : kind == Kind::npy       ? cli::FileFormat::npy
                                                  : cli::FileFormat::npz;
    const std::vector<cli::FileTensor> tensors =
        cli::read_tensors(format, file);
    cli::Scanner scanner(machine, [](std::uint64_t) {});
    const std::vector<TensorStatistics> found = scanner.scan(tensors);
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const cli::Element& element = tensors[i].element;
      const bool scanned = element.kind == cli::Element::Kind::scanned;
      if (found[i].count != (scanned ? tensors[i].count * element.parts : 0)) {
        std::fprintf(stderr, "a tensor was scanned in part\n");
        std::exit(1);
      }
    }
    return true;
  } catch (const cli::Failure&) {
    return false;
  }
}

int run(std::uint64_t cases, std::uint64_t first_seed) {
  MachineConfig config;
  config.backend = "serial";
  Machine machine(config);
  const std::vector<Seed> all = seeds();
  for (const Seed& seed : all) {
    if (run_case(seed.kind, seed.file, machine)) continue;
    std::fprintf(stderr, "a seed is not a good file\n");
    return 1;
  }
  std::uint64_t good = 0;
  for (std::uint64_t i = 0; i < cases; ++i) {
    Random random(first_seed + i);
    const Seed& seed = all[i % all.size()];
    std::string file = seed.file;
    const std::size_t rounds = 1 + random.below(4);
    for (std::size_t round = 0; round < rounds; ++round) {
      mutate(file, all[random.below(all.size())].file, random);
    }
    try {
      good += run_case(seed.kind, file, machine) ? 1 : 0;
    } catch (const std::exception& error) {
      std::fprintf(stderr, "case of seed %llu: %s\n",
                   static_cast<unsigned long long>(first_seed + i),
                   error.what());
      return 1;
    }
  }
  std::printf("%llu mutations: %llu read, %llu refused\n",
              static_cast<unsigned long long>(cases),
              static_cast<unsigned long long>(good),
              static_cast<unsigned long long>(cases - good));
  // Some of each kind, or the mutations test nothing.
  return cases >= 1000 && (good < cases / 100 || good == cases) ? 1 : 0;
}

}  // namespace
}  // namespace swamp::test

int main(int argc, char** argv) {
  const std::uint64_t cases =
      argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 200000;
  const std::uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
  return swamp::test::run(cases, seed);
}
