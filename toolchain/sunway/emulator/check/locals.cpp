// Unwinds stacks, and looks for a variable in the frame that holds an address.
#include "toolchain/sunway/emulator/check/locals.h"

#include <pthread.h>
#include <unwind.h>

#include <algorithm>
#include <mutex>
#include <vector>

#include "toolchain/sunway/emulator/check/dwarf.h"
#include "toolchain/sunway/emulator/debug_info.h"

namespace swamp::sunway::check {
namespace {

// Frame is one of the functions that a thread is in.
struct Frame {
  std::uintptr_t pc, stack_pointer, frame_pointer, base;
};

std::vector<Frame> frames_here() {
  constexpr std::size_t kMost = 64;
  std::vector<Frame> all;
  _Unwind_Backtrace(
      [](_Unwind_Context* context, void* out) {
        auto& found = *static_cast<std::vector<Frame>*>(out);
        // Where the caller's frame begins the called one's has ended.
        const std::uintptr_t stack = _Unwind_GetCFA(context);
        if (!found.empty()) found.back().base = stack;
        if (found.size() == kMost) return _URC_NORMAL_STOP;
        constexpr int kFramePointer = 6;
        found.push_back({_Unwind_GetIP(context), stack,
                         _Unwind_GetGR(context, kFramePointer), 0});
        return _URC_NO_REASON;
      },
      &all);
  return all;
}

Local find_local(const std::vector<Frame>& frames, std::uintptr_t begin,
                 std::size_t bytes) {
  const auto frame =
      std::find_if(frames.begin(), frames.end(), [=](const Frame& one) {
        return begin >= one.stack_pointer && begin < one.base;
      });
  if (frame == frames.end()) return {};
  const std::uintptr_t call = frame->pc - 1 - program_base();
  const auto function = functions().upper_bound(call);
  if (function == functions().end() || call < function->second.begin) return {};
  const auto is_visible = [&](const Slot& slot) {
    return std::any_of(slot.scope.begin(), slot.scope.end(),
                       [&](const Slot::Range& range) {
                         return call >= range.first && call < range.second;
                       });
  };
  Local best;
  std::size_t most = 0;
  for (const Slot& slot : function->second.slots) {
    const std::uintptr_t at =
        slot.offset + (slot.place == Slot::Place::base ? frame->base
                       : slot.place == Slot::Place::frame_pointer
                           ? frame->frame_pointer
                           : frame->stack_pointer);
    if (begin < at || begin >= at + slot.bytes || !is_visible(slot)) continue;
    const std::size_t held = std::min(at + slot.bytes - begin, bytes);
    if (held > most) best = {slot.name, at, slot.bytes, slot.is_plain};
    most = std::max(most, held);
  }
  return best;
}

// The stacks of host threads that wait for slaves.
struct Stack {
  pthread_t thread;
  std::vector<Frame> frames;
};
std::mutex stacks_mutex;
std::vector<Stack>& stacks() {
  static auto* const all = new std::vector<Stack>;
  return *all;
}

}  // namespace

Local find_own_local(std::uintptr_t begin, std::size_t bytes) {
  return find_local(frames_here(), begin, bytes);
}

void remember_stack() {
  const std::lock_guard<std::mutex> lock(stacks_mutex);
  stacks().push_back({pthread_self(), frames_here()});
}

void forget_stack() {
  const std::lock_guard<std::mutex> lock(stacks_mutex);
  const auto is_own = [](const Stack& stack) {
    return pthread_equal(stack.thread, pthread_self()) != 0;
  };
  stacks().erase(std::remove_if(stacks().begin(), stacks().end(), is_own),
                 stacks().end());
}

Local find_masters_local(std::uintptr_t begin, std::size_t bytes) {
  const std::lock_guard<std::mutex> lock(stacks_mutex);
  for (const Stack& stack : stacks()) {
    if (begin < stack.frames.front().stack_pointer ||
        begin >= stack.frames.back().stack_pointer) {
      continue;
    }
    return find_local(stack.frames, begin, bytes);
  }
  return {};
}

}  // namespace swamp::sunway::check
