#include "master/cli/scan/index_file.h"

#include <fmt/format.h>

#include <unordered_set>

#include "master/cli/command.h"
#include "master/cli/json_events.h"
#include "master/cli/scan/tensor_file.h"

namespace swamp::cli {
namespace {

constexpr std::size_t kMaxIndexBytes = 100000000;
constexpr std::size_t kMaxDepth = 8;

// check_name() refuses names that lead out of the index's folder.
void check_name(const std::string& tensor, const std::string& file) {
  bool leads_out =
      file.empty() || file[0] == '/' || file.find('\0') != std::string::npos;
  for (std::size_t begin = 0; begin <= file.size();) {
    const std::size_t end = std::min(file.find('/', begin), file.size());
    leads_out |= file.compare(begin, end - begin, "..") == 0;
    begin = end + 1;
  }
  if (!leads_out) return;
  throw Failure(
      fmt::format("weight_map: tensor {}: file {}, expected one in the folder "
                  "of the index",
                  quoted(tensor), quoted(file)));
}

// Index takes the weight_map at depth 2; whatever else there is, it skips.
class Index final : public JsonEvents {
 public:
  ShardMap take() {
    if (!seen_)
      throw Failure("no weight_map, expected {\"weight_map\": {...}}");
    return std::move(shards_);
  }

  void begin_object() override {
    value("an object", depth_ == 0 || (depth_ == 1 && in_map_));
    ++depth_;
  }
  void key(const std::string& name) override {
    if (depth_ == 1) {
      in_map_ = name == "weight_map";
      if (in_map_ && seen_) throw Failure("weight_map twice");
      seen_ |= in_map_;
    } else if (depth_ == 2 && in_map_) {
      tensor_ = name;
      if (!tensors_.insert(name).second) {
        throw Failure(
            fmt::format("weight_map: tensor {} is there twice", quoted(name)));
      }
    }
  }
  void end_object() override { --depth_; }
  void begin_array() override {
    value("an array", false);
    ++depth_;
  }
  void end_array() override { --depth_; }
  void string(const std::string& text) override {
    value("a string", depth_ == 2);
    if (depth_ != 2 || !in_map_) return;
    check_name(tensor_, text);
    shards_[text].push_back(tensor_);
  }
  void integer(std::uint64_t) override { value("a number", false); }
  void other(const char* kind) override { value(kind, false); }

 private:
  void value(const char* kind, bool fine) const {
    if (fine) return;
    if (depth_ == 0) throw Failure(fmt::format("{}, expected an object", kind));
    if (!in_map_) return;
    if (depth_ == 1) {
      throw Failure(fmt::format("weight_map: {}, expected an object", kind));
    }
    throw Failure(
        fmt::format("weight_map: tensor {}: {}, expected the name of "
                    "a file",
                    quoted(tensor_), kind));
  }

  ShardMap shards_;
  std::unordered_set<std::string> tensors_;
  std::string tensor_;
  std::size_t depth_ = 0;
  bool in_map_ = false;
  bool seen_ = false;
};

}  // namespace

ShardMap read_index(Bytes json) {
  if (json.size() > kMaxIndexBytes) {
    throw Failure(fmt::format("an index of {} bytes, expected at most {}",
                              json.size(), kMaxIndexBytes));
  }
  Index index;
  read_json(json, kMaxDepth, index);
  return index.take();
}

}  // namespace swamp::cli
