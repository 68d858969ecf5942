// No byte outside of a tensor is read or written, in any transfer mode: every
// tensor ends, or begins, at a page that cannot be touched.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "machines.h"
#include "support/guarded_pages.h"
#include "swamp/amp.h"

namespace swamp::test {
namespace {

constexpr std::size_t kBytes[] = {2, 2, 4, 8};  // by ScalarType

// GuardedList is a tensor of every dtype x count x edge of its pages.
class GuardedList {
 public:
  GuardedList() {
    for (const ScalarType type : {kFloat16, kBFloat16, kFloat32, kFloat64}) {
      const std::size_t bytes = kBytes[type];
      for (const std::size_t count : {1u, 2u, 3u, 17u, 100u, 1023u, 20001u}) {
        for (const bool at_end : {false, true}) {
          pages_.push_back(std::make_unique<GuardedPages>(count * bytes));
          GuardedPages& pages = *pages_.back();
          std::byte* data =
              at_end ? pages.end() - count * bytes : pages.begin();
          std::memset(pages.begin(), 0x3c, pages.bytes());
          tensors_.push_back({data, count, type});
        }
      }
    }
  }

  const std::vector<Tensor>& tensors() const { return tensors_; }

  // slack_is_untouched() looks at the bytes of the pages beside the tensors.
  bool slack_is_untouched() const {
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      const auto* data = static_cast<const std::byte*>(tensors_[i].data);
      const std::byte* end =
          data + tensors_[i].count * kBytes[tensors_[i].dtype];
      for (const std::byte* at = pages_[i]->begin(); at < data; ++at) {
        if (*at != std::byte{0x3c}) return false;
      }
      for (const std::byte* at = end; at < pages_[i]->end(); ++at) {
        if (*at != std::byte{0x3c}) return false;
      }
    }
    return true;
  }

 private:
  std::vector<std::unique_ptr<GuardedPages>> pages_;
  std::vector<Tensor> tensors_;
};

TEST(UnscaleGuard, NothingOutsideOfTheTensorsIsTouched) {
  for (const MachineConfig& config :
       machine_configs({{1, 3, 4096}, {1, 64, 65536}}, true)) {
    SCOPED_TRACE(to_text(config));
    const auto machine = make_machine(config);
    const GuardedList list;
    float found_inf = 0.0f;
    for (const float inv_scale : {-1.0f, 1.0f}) {
      amp_foreach_non_finite_check_and_unscale_(
          list.tensors(), found_inf, inv_scale, nullptr, machine.get());
    }
    EXPECT_EQ(found_inf, 0.0f);
    EXPECT_TRUE(list.slack_is_untouched());
    for (const Tensor& tensor : list.tensors()) {
      const auto* data = static_cast<const unsigned char*>(tensor.data);
      const std::size_t bytes = kBytes[tensor.dtype];
      for (std::size_t i = 0; i < tensor.count * bytes; ++i) {
        // The sign, in the last byte of each element, and nothing else.
        ASSERT_EQ(data[i], i % bytes == bytes - 1 ? 0xbc : 0x3c);
      }
    }
  }
}

}  // namespace
}  // namespace swamp::test
