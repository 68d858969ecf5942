// The C declarations of swamp_sunway/dma.h for SW26010.
#include <cstdint>
#include <cstring>

#include "toolchain/sunway/emulator/machine.h"
#include "toolchain/sunway/emulator/polls.h"
#include "toolchain/sunway/emulator/schedule.h"
#include "toolchain/sunway/emulator/transfer.h"

namespace swamp::sunway {

enum DmaMode {
  kPrivateMode,
  kBroadcastMode,
  kColumnMode,
  kRowBroadcastMode,
};
enum DmaOperation { kDmaPut, kDmaGet };

}  // namespace swamp::sunway

// DMA as programs call it: toolchain/sunway/include/swamp_sunway/dma.h.

namespace sunway = swamp::sunway;
using sunway::Range;
using sunway::Slave;
using sunway::Transfer;
using Kind = sunway::Transfer::Kind;

namespace {

Transfer transfer(Kind kind, void* ldm, void* main, int length, int block,
                  int stride, volatile void* reply, const char* call) {
  return {kind,
          static_cast<std::byte*>(ldm),
          static_cast<std::byte*>(main),
          length,
          block,
          stride,
          reply,
          call};
}

int issue(const Transfer& t, const void* pc) {
  Slave& slave = sunway::require_self(t.call);
  sunway::count(slave, t);
  sunway::remember_get(slave, t);
  if (slave.observer) {
    slave.observer->issue(t, pc, false);
    return 0;
  }
  sunway::carry_out(t);
  if (t.reply != nullptr) sunway::add_reply(t.reply);
  return 0;
}

int blocking(const Transfer& t, const void* pc) {
  Slave& slave = sunway::require_self(t.call);
  sunway::count(slave, t);
  if (!t.writes_main()) ++slave.counters.get_waits;
  if (slave.observer) {
    slave.observer->blocking(t, pc);
  } else {
    sunway::carry_out(t);
  }
  return 0;
}

// spread() is a get whose data and reply go to all slaves of `range`.
int spread(const Transfer& t, sunway::Range range, const void* pc) {
  Slave& slave = sunway::require_self(t.call);
  sunway::count(slave, t);
  if (slave.observer && !slave.observer->allows(t, pc)) return 0;
  sunway::let_receivers_run(slave, range, ~0u);
  if (slave.observer) slave.observer->broadcast(t, pc);
  sunway::for_range(slave, range, ~0u, [&](Slave& other) {
    Transfer own = t;
    own.ldm = sunway::as_seen_by(other, t.ldm);
    if (!slave.observer ||
        slave.observer->reaches(other, own.ldm, t.length, t.call, pc)) {
      sunway::carry_out(own);
      if (other.observer) {
        other.observer->received(own.ldm, t.length, slave,
                                 sunway::as_seen_by(other, t.reply), t.call,
                                 pc);
      }
    }
    sunway::add_reply(sunway::as_seen_by(other, t.reply));
    sunway::end_nap(other);
  });
  sunway::notify_receivers();
  return 0;
}

// collect() is a get that all slaves of `range` call together.
int collect(const Transfer& t, sunway::Range range, const void* pc) {
  Slave& slave = sunway::require_self(t.call);
  sunway::wait_at_barrier(slave, range, t.call, pc);
  blocking(t, pc);
  sunway::wait_at_barrier(slave, range, t.call, pc);
  return 0;
}

int get_by_mode(int mode, const Transfer& t, const void* pc) {
  switch (mode) {
    case sunway::kBroadcastMode:
      return spread(t, Range::array, pc);
    case sunway::kColumnMode:
      return spread(t, Range::column, pc);
    case sunway::kRowBroadcastMode:
      return spread(t, Range::row, pc);
    default:
      return issue(t, pc);
  }
}

// copy_shared() copies to or from LDM that slaves share.
int copy_shared(void* to, const void* from, int length, const char* call,
                const void* pc) {
  const Slave& slave = sunway::require_self(call);
  if (length <= 0) return 0;
  const auto bytes = static_cast<std::size_t>(length);
  if (slave.observer &&
      (!slave.observer->operand(from, bytes, false, call, pc) ||
       !slave.observer->operand(to, bytes, true, call, pc))) {
    return 0;
  }
  std::memcpy(to, from, bytes);
  return 0;
}

}  // namespace

extern "C" {

#pragma GCC visibility push(default)

// The functions differ in their parameters, and in what they do with the
// transfer.
#define SWAMP_GET void *ldm, void *main, int length
#define SWAMP_PUT void *main, void *ldm, int length
#define SWAMP_DMA(name, kind, parameters, block, stride, reply, action)       \
  int athread_##name parameters {                                             \
    const void* const pc = SWAMP_SUNWAY_CALLER();                             \
    const Transfer t =                                                        \
        transfer(Kind::kind, ldm, main, length, block, stride, reply, #name); \
    return action;                                                            \
  }
// Of each there is a form for blocks.
#define SWAMP_DMA_CALL(name, end, kind, sides, action)                       \
  SWAMP_DMA(name##end, kind, (sides), 0, 0, nullptr, action)                 \
  SWAMP_DMA(name##_stride##end, kind, (sides, int block, int stride), block, \
            stride, nullptr, action)
#define SWAMP_DMA_START(name, kind, sides, action)                          \
  SWAMP_DMA(name, kind, (sides, volatile void* reply), 0, 0, reply, action) \
  SWAMP_DMA(name##_stride, kind,                                            \
            (sides, int block, int stride, volatile void* reply), block,    \
            stride, reply, action)
SWAMP_DMA_CALL(dma_get, , get, SWAMP_GET, blocking(t, pc))
SWAMP_DMA_START(dma_iget, get, SWAMP_GET, issue(t, pc))
SWAMP_DMA_CALL(dma_put, , put, SWAMP_PUT, blocking(t, pc))
SWAMP_DMA_START(dma_iput, put, SWAMP_PUT, issue(t, pc))
SWAMP_DMA(dma_bcast, get, (SWAMP_GET, volatile void* reply), 0, 0, reply,
          spread(t, Range::array, pc))
SWAMP_DMA_START(dma_ibcast, get, SWAMP_GET, spread(t, Range::array, pc))
SWAMP_DMA_START(dma_row_ibcast, get, SWAMP_GET, spread(t, Range::row, pc))
SWAMP_DMA_START(dma_col_ibcast, get, SWAMP_GET, spread(t, Range::column, pc))
SWAMP_DMA_CALL(dma_bcast, _coll, get, SWAMP_GET, collect(t, Range::array, pc))
SWAMP_DMA_CALL(dma_row_bcast, _coll, get, SWAMP_GET, collect(t, Range::row, pc))
SWAMP_DMA_CALL(dma_col_bcast, _coll, get, SWAMP_GET,
               collect(t, Range::column, pc))

int athread_dma_wait_value(volatile void* reply, int value) {
  sunway::wait_reply("dma_wait_value", reply, value, SWAMP_SUNWAY_CALLER());
  return 0;
}

int athread_dma_barrier() {
  Slave& slave = sunway::require_self("dma_barrier");
  if (slave.observer) slave.observer->dma_barrier();
  return 0;
}
int athread_dma_all_barrier() { return athread_dma_barrier(); }

int athread_memcpy_sldm(void* to, void* from, int length, int) {
  return copy_shared(to, from, length, "memcpy_sldm", SWAMP_SUNWAY_CALLER());
}
int athread_sldm_get(void* to, void* from, int length) {
  return copy_shared(to, from, length, "sldm_get", SWAMP_SUNWAY_CALLER());
}

int athread_get(int mode, void* main, void* ldm, int length,
                volatile void* reply, char, int stride, int block) {
  return get_by_mode(mode,
                     transfer(Kind::get, ldm, main, length, block, stride,
                              reply, "athread_get"),
                     SWAMP_SUNWAY_CALLER());
}
int athread_put(int, void* ldm, void* main, int length, volatile void* reply,
                int stride, int block) {
  return issue(transfer(Kind::put, ldm, main, length, block, stride, reply,
                        "athread_put"),
               SWAMP_SUNWAY_CALLER());
}

// swamp_dma_descriptor() is the instruction dma. The words of a descriptor:
// bits 0 to 31 of the first are the length, then 24 bits of block, 4 of the
// operation and 4 of the mode; bits 0 to 31 of the second are the address of
// the reply word in LDM, and the others the stride.
void swamp_dma_descriptor(const unsigned long* words, void* main, void* ldm) {
  const Slave& slave = sunway::require_self("dma");
  // The upper half of the address is that of the slave's LDM.
  const auto slot = reinterpret_cast<std::uintptr_t>(slave.slot);
  std::uintptr_t reply = (slot & ~0xfffffffful) | (words[1] & 0xfffffffful);
  if (reply < slot) reply += 1ul << 32;
  const bool get = (words[0] >> 56 & 0xf) == sunway::kDmaGet;
  (void)get_by_mode(
      get ? static_cast<int>(words[0] >> 60) : sunway::kPrivateMode,
      transfer(get ? Kind::get : Kind::put, ldm, main,
               static_cast<int>(words[0]),
               static_cast<int>(words[0] >> 32 & 0xffffff),
               static_cast<int>(words[1] >> 32),
               reinterpret_cast<volatile void*>(reply), "dma"),
      SWAMP_SUNWAY_CALLER());
}

#pragma GCC visibility pop

}  // extern "C"
