// Every collective is one exchange of pieces, which a subclass implements; sums
// are computed here in the order of the ranks, so that their bits do not depend
// on a library. The communicator of one process copies nothing.
#include "swamp/communicator.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "master/text.h"
#include "runtime/fork_cancel.h"

namespace swamp {
namespace {

class Alone final : public Communicator {
 public:
  int rank() const noexcept override { return 0; }
  int size() const noexcept override { return 1; }

 private:
  void exchange_pieces(const ConstBytes*, const MutableBytes*) override {}
};

std::size_t index(int rank) { return static_cast<std::size_t>(rank); }

// Throws Error if data of `bytes` bytes is null. `piece` is its index, if any.
void require(const char* function, const char* argument, const void* data,
             std::size_t bytes, int piece = -1) {
  if (data != nullptr || bytes == 0) return;
  std::string name = std::string("Communicator::") + function + ": " + argument;
  if (piece >= 0) name += "[" + std::to_string(piece) + "].data";
  master::refuse(name, "null",
                 "the address of " + std::to_string(bytes) +
                     (bytes == 1 ? " byte" : " bytes"));
}

// PerRank holds a value for each rank. It allocates only for many ranks, so
// that a step of one process does not.
template <class Value>
class PerRank {
 public:
  explicit PerRank(std::size_t ranks, const Value& value = Value())
      : ranks_(ranks) {
    if (ranks > kFew) many_.resize(ranks);
    std::fill(begin(), end(), value);
  }
  PerRank(const PerRank&) = delete;
  PerRank& operator=(const PerRank&) = delete;

  Value* data() noexcept { return ranks_ > kFew ? many_.data() : few_; }
  Value* begin() noexcept { return data(); }
  Value* end() noexcept { return data() + ranks_; }
  Value& operator[](std::size_t rank) noexcept { return data()[rank]; }
  std::size_t size() const noexcept { return ranks_; }

 private:
  static constexpr std::size_t kFew = 16;
  std::size_t ranks_;
  Value few_[kFew];
  std::vector<Value> many_;
};

void require_list(const char* function, const char* argument,
                  const void* list) {
  if (list != nullptr) return;
  master::refuse(std::string("Communicator::") + function + ": " + argument,
                 "null", "an address");
}

// Gathered holds a value of every rank.
template <class Value>
struct Gathered : PerRank<Value> {
  Gathered(Communicator& communicator, Value value)
      : PerRank<Value>(index(communicator.size())) {
    communicator.all_gather(&value, sizeof(Value), this->data());
  }
};

template <class Value>
Value sum_in_order(Communicator& communicator, Value value) {
  Gathered<Value> all(communicator, value);
  // Start from rank 0's value: 0 + -0 would lose the sign.
  Value sum = all[0];
  for (std::size_t rank = 1; rank < all.size(); ++rank) sum += all[rank];
  return sum;
}

// larger() returns nan if one of the two is nan.
float larger(float a, float b) {
  if (std::isnan(a) || std::isnan(b)) {
    return std::numeric_limits<float>::quiet_NaN();
  }
  return std::max(a, b);
}

}  // namespace

Communicator::~Communicator() = default;

Communicator& Communicator::alone() noexcept {
  static runtime::MadeOnce<Alone> alone;
  return alone.get([] { return Alone(); });
}

void Communicator::exchange(const ConstBytes* send,
                            const MutableBytes* receive) {
  require_list("exchange", "send", send);
  require_list("exchange", "receive", receive);
  for (int r = 0; r < size(); ++r) {
    require("exchange", "send", send[r].data, send[r].bytes, r);
    require("exchange", "receive", receive[r].data, receive[r].bytes, r);
  }
  const ConstBytes& mine = send[rank()];
  const MutableBytes& own = receive[rank()];
  if (mine.bytes != own.bytes) {
    const std::string piece = "[" + std::to_string(rank()) + "].bytes";
    master::refuse("Communicator::exchange: send" + piece,
                   std::to_string(mine.bytes),
                   std::to_string(own.bytes) + ", as receive" + piece);
  }
  if (size() > 1) exchange_pieces(send, receive);
  if (own.bytes != 0) std::memmove(own.data, mine.data, own.bytes);
}

float Communicator::max(float value) {
  float largest = -std::numeric_limits<float>::infinity();
  for (const float each : Gathered<float>(*this, value)) {
    largest = larger(largest, each);
  }
  return largest;
}

void Communicator::max(float* values, std::size_t count) {
  require("max", "values", values, count * sizeof(float));
  std::vector<float> all(count * index(size()));
  all_gather(values, count * sizeof(float), all.data());
  std::copy_n(all.begin(), count, values);
  for (std::size_t i = 0; i < all.size(); ++i) {
    values[i % count] = larger(values[i % count], all[i]);
  }
}

double Communicator::sum(double value) { return sum_in_order(*this, value); }

std::uint64_t Communicator::sum(std::uint64_t value) {
  return sum_in_order(*this, value);
}

void Communicator::barrier() { const Gathered<std::uint8_t> all(*this, 0); }

void Communicator::all_gather(const void* mine, std::size_t bytes, void* all) {
  PerRank<std::size_t> equal(index(size()), bytes);
  all_gather_varied(mine, equal.data(), all);
}

void Communicator::all_gather_varied(const void* mine, const std::size_t* bytes,
                                     void* all) {
  require_list("all_gather", "bytes", bytes);
  const std::size_t ranks = index(size());
  std::size_t total = 0;
  for (std::size_t r = 0; r < ranks; ++r) total += bytes[r];
  require("all_gather", "mine", mine, bytes[rank()]);
  require("all_gather", "all", all, total);

  PerRank<ConstBytes> send(ranks, {mine, bytes[rank()]});
  PerRank<MutableBytes> receive(ranks);
  std::size_t offset = 0;
  for (std::size_t r = 0; r < ranks; ++r) {
    if (bytes[r] == 0) continue;
    receive[r] = {static_cast<std::byte*>(all) + offset, bytes[r]};
    offset += bytes[r];
  }
  exchange(send.data(), receive.data());
}

namespace {

using Values = std::map<std::string, std::string>;

// Returns names and values one after another, each as "LENGTH:TEXT".
std::string packed(const Values& values) {
  std::string bytes;
  for (const auto& [name, value] : values) {
    for (const std::string* text : {&name, &value}) {
      bytes += std::to_string(text->size()) + ":" + *text;
    }
  }
  return bytes;
}

Values unpacked(const std::string& bytes) {
  Values values;
  std::size_t at = 0;
  const auto next = [&] {
    const std::size_t colon = bytes.find(':', at);
    const std::size_t length = std::stoull(bytes.substr(at, colon - at));
    at = colon + 1 + length;
    return bytes.substr(colon + 1, length);
  };
  while (at < bytes.size()) {
    const std::string name = next();
    values[name] = next();
  }
  return values;
}

// Throws Error for the first difference between the values of a rank and those
// of rank 0. Names that only one of them has come last, because one option
// decides which others there are.
void require_equal(std::size_t rank, const Values& values,
                   const Values& first) {
  const auto difference = [&](const std::string& name, const std::string& got,
                              const std::string& expected) {
    master::refuse(name, got + " on rank " + std::to_string(rank),
                   expected + " as on rank 0");
  };
  for (const auto& [name, value] : values) {
    const auto found = first.find(name);
    if (found != first.end() && found->second != value) {
      difference(name, value, found->second);
    }
  }
  for (const auto& [name, value] : values) {
    if (first.count(name) == 0) difference(name, value, "none");
  }
  for (const auto& [name, value] : first) {
    if (values.count(name) == 0) difference(name, "none", value);
  }
}

}  // namespace

void Communicator::require_same(const Values& values) {
  if (size() == 1) return;
  require_same(packed(values), [&] { return values; });
}

void Communicator::require_same(const std::string& bits,
                                const std::function<Values()>& values) {
  // Different hashes of equal bits, by another library, only cost time.
  Gathered<std::uint64_t> hashes(*this, std::hash<std::string>()(bits));
  if (std::equal(hashes.begin() + 1, hashes.end(), hashes.begin())) return;

  const std::string mine = packed(values());
  Gathered<std::size_t> bytes(*this, mine.size());
  std::string all(std::accumulate(bytes.begin(), bytes.end(), std::size_t{0}),
                  '\0');
  all_gather_varied(mine.data(), bytes.data(), all.data());
  const Values first = unpacked(all.substr(0, bytes[0]));
  std::size_t at = bytes[0];
  for (std::size_t rank = 1; rank < bytes.size(); at += bytes[rank++]) {
    require_equal(rank, unpacked(all.substr(at, bytes[rank])), first);
  }
}

namespace {

// Returns the positive whole number in the variable, or 0. The variables belong
// to the launchers, so a bad value is not an error.
int count(const char* variable) {
  const char* value = std::getenv(variable);
  const std::string text = value == nullptr ? "" : value;
  const bool digits = !text.empty() && text.size() <= 9 &&
                      text.find_first_not_of("0123456789") == std::string::npos;
  return digits ? std::stoi(text) : 0;
}

}  // namespace

int launched_ranks() {
  for (const char* variable :
       {"OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", "PMI_SIZE"}) {
    if (const int ranks = count(variable)) return ranks;
  }
  // srun sets only the rank. Without one of its MPI plug-ins, for example in a
  // batch script, the number of tasks does not describe this program.
  for (const char* variable : {"PMI_RANK", "PMIX_RANK"}) {
    if (std::getenv(variable) == nullptr) continue;
    for (const char* tasks : {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"}) {
      if (const int ranks = count(tasks)) return ranks;
    }
  }
  return 1;
}

}  // namespace swamp
