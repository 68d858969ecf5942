// The slaves' side of the athread backend, compiled by `swcc -mslave`, as the
// vendor's compiler would: C++17 of GCC 7, no exceptions, no virtual calls,
// nothing of the C++ library that is code.
#include <slave.h>

#include <cstddef>
#include <cstdint>

#include "runtime/athread/dma.h"
#include "runtime/athread/protocol.h"
#include "runtime/float_environment.h"
#include "runtime/job.h"
#include "runtime/ldm.h"
#include "runtime/tile_loop.h"
#include "slave/kernel.h"

namespace swamp::runtime::athread {
namespace {

// Frame is a slave's in LDM, never its stack's: where a program is started
// without `-b`, stacks lie in main memory, and no DMA may go there.
struct Frame {
  JobCall call;
  SlaveRange range;
  SlaveResult result;
  GreetingCall greeting_call;
  Greeting greeting;
  Reply reply;
  Reply issued;
};
__thread_local Frame frame;

void get(void* ldm, const void* main, std::size_t bytes) {
  AthreadDma dma;
  dma.get(ldm, main, bytes, &frame.reply);
  dma.wait(&frame.reply, ++frame.issued);
}
void put(void* main, const void* ldm, std::size_t bytes) {
  AthreadDma dma;
  dma.put(main, ldm, bytes, &frame.reply);
  dma.wait(&frame.reply, ++frame.issued);
}

// run_part() is one slave of the job, in the LDM at `memory`.
void run_part(int slave, std::byte* memory) {
  const Job& job = frame.call.remote.job;
  get(&frame.range, job.ranges + slave, sizeof frame.range);
  frame.result = SlaveResult{};
  const SlavePart part{job.table, frame.range, job.partials, slave,
                       frame.result};
  Ldm ldm(memory, frame.call.remote.ldm_bytes);
  AthreadDma dma;
  TileLoop<AthreadDma>(part, kernel_tables().tables[0].rows,
                       frame.call.remote.tile_bytes, ldm, dma)
      .run();
  put(job.results + slave, &frame.result, sizeof frame.result);
}

// begin() makes the frame's reply word that of this launch.
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
  const int slaves = frame.call.remote.job.slaves;
  const int first = _CGN * frame.call.group_cores + _PEN;
  if (first >= slaves) return;
  // An allocation is a multiple of 64 only.
  const std::size_t bytes =
      frame.call.remote.ldm_bytes + swamp::runtime::kLdmAlignment;
  // The program's own code may hold LDM; the master runs what was not run.
  if (get_allocatable_size() < bytes) return;
  void* memory = ldm_malloc(bytes);
  if (memory == nullptr) return;
  const std::size_t skip =
      -reinterpret_cast<std::uintptr_t>(memory) % swamp::runtime::kLdmAlignment;
  {
    const swamp::runtime::FloatEnvironmentScope environment(
        frame.call.remote.float_environment);
    for (int slave = first; slave < slaves; slave += frame.call.slave_cores) {
      run_part(slave, static_cast<std::byte*>(memory) + skip);
    }
  }
  ldm_free(memory, bytes);
}

}  // extern "C"
