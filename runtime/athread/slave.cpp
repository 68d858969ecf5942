// The code of backend athread that runs on the slaves. It is compiled by
// `swcc -mslave` or the vendor's compiler: C++17 of GCC 7, without exceptions,
// virtual calls and compiled code of the C++ library.
#include <slave.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "runtime/athread/protocol.h"
#include "runtime/float_environment.h"
#include "runtime/launch.h"
#include "runtime/ldm.h"
#include "runtime/tile_loop.h"
#include "slave/kernel.h"

namespace swamp::runtime::athread {
namespace {

// AthreadDma is the DMA of the tile loop. The machine transfers whole 4-byte
// words only; tiles, segments, operations and partial results consist of them.
// Every length is less than an LDM.
class AthreadDma {
 public:
  AthreadDma(const SharedWords& shared_words, int slave)
      : shared_words_(shared_words), slave_(slave) {}

  void get(void* ldm, const void* main, const Lines& lines, Reply* reply) {
    const auto bytes = static_cast<int>(lines.all_bytes());
    if (lines.count == 1) {
      CRTS_dma_iget(ldm, const_cast<void*>(main), bytes, reply);
    } else {
      CRTS_dma_iget_stride(ldm, const_cast<void*>(main), bytes,
                           static_cast<int>(lines.bytes), gap(lines), reply);
    }
  }
  void put(void* main, const void* ldm, const Lines& lines, Reply* reply) {
    const auto bytes = static_cast<int>(lines.all_bytes());
    if (lines.count == 1) {
      CRTS_dma_iput(main, const_cast<void*>(ldm), bytes, reply);
    } else {
      CRTS_dma_iput_stride(main, const_cast<void*>(ldm), bytes,
                           static_cast<int>(lines.bytes), gap(lines), reply);
    }
  }
  // DMA cannot transfer less than a word.
  void load(void* ldm, const void* main, std::size_t bytes) {
    std::memcpy(ldm, main, bytes);
  }
  // A store of less than a word is within one word.
  void store(std::byte* main, const void* ldm, std::size_t bytes,
             const OperandPart& part) {
    std::memcpy(shared_words_.copy(main, part, slave_), ldm, bytes);
  }
  void wait(Reply* reply, Reply value) { CRTS_dma_wait_value(reply, value); }

 private:
  // gap() returns the bytes between two lines.
  static int gap(const Lines& lines) {
    return static_cast<int>(lines.step - lines.bytes);
  }

  const SharedWords& shared_words_;
  int slave_;
};

// Frame is in LDM and not on the stack, because the stacks of a program that
// was started without `-b` are in main memory, which DMA cannot write.
struct Frame {
  LaunchCall call;
  SlaveRange range;
  SlaveResult result;
  GreetingCall greeting_call;
  Greeting greeting;
  Reply reply;
  Reply issued;
};
__thread_local Frame frame;

void get(void* ldm, const void* main, std::size_t bytes) {
  CRTS_dma_iget(ldm, const_cast<void*>(main), static_cast<int>(bytes),
                &frame.reply);
  ++frame.issued;
  CRTS_dma_wait_value(&frame.reply, frame.issued);
}
void put(void* main, const void* ldm, std::size_t bytes) {
  CRTS_dma_iput(main, const_cast<void*>(ldm), static_cast<int>(bytes),
                &frame.reply);
  ++frame.issued;
  CRTS_dma_wait_value(&frame.reply, frame.issued);
}

// run_part() is one slave of the launch, in the LDM at `memory`.
void run_part(int slave, std::byte* memory) {
  const Launch& launch = frame.call.launch;
  get(&frame.range, launch.ranges + slave, sizeof frame.range);
  frame.result = SlaveResult{};
  Ldm ldm(memory, launch.ldm_used_bytes);
  AthreadDma dma(frame.call.shared_words, slave);
  TileLoop<AthreadDma>(launch, slave, frame.range,
                       kernel_tables().tables[0].rows, ldm, dma, frame.result)
      .run();
  put(launch.results + slave, &frame.result, sizeof frame.result);
}

// begin() resets the frame's reply word for this launch.
void begin() {
  frame.reply = 0;
  frame.issued = 0;
}

}  // namespace
}  // namespace swamp::runtime::athread

extern "C" {

void swamp_slave_greet(void* call) {
  using namespace swamp::runtime::athread;
  begin();
  get(&frame.greeting_call, call, sizeof frame.greeting_call);
  frame.greeting.present = 1;
  frame.greeting.ldm_bytes = get_allocatable_size();
  put(frame.greeting_call.greetings + _CGN * kSlavesPerGroup + _PEN,
      &frame.greeting, sizeof frame.greeting);
}

void swamp_slave_run(void* call) {
  using namespace swamp::runtime::athread;
  begin();
  get(&frame.call, call, sizeof frame.call);
  const int slaves = frame.call.launch.slaves;
  const int first = _CGN * frame.call.group_cores + _PEN;
  if (first >= slaves) return;
  // An allocation is a multiple of 64 only.
  const std::size_t bytes =
      frame.call.launch.ldm_used_bytes + swamp::runtime::kLdmAlignment;
  // The program's own code may hold LDM. The master then runs this part.
  if (get_allocatable_size() < bytes) return;
  void* memory = ldm_malloc(bytes);
  if (memory == nullptr) return;
  const std::size_t skip =
      -reinterpret_cast<std::uintptr_t>(memory) % swamp::runtime::kLdmAlignment;
  {
    const swamp::runtime::FloatEnvironmentScope environment(
        frame.call.launch.float_environment);
    for (int slave = first; slave < slaves; slave += frame.call.slave_cores) {
      run_part(slave, static_cast<std::byte*>(memory) + skip);
    }
  }
  ldm_free(memory, bytes);
}

}  // extern "C"
