// Transfers from LDM to LDM inside a core group: swamp_sunway/rma.h. A put and
// a broadcast are carried out when they are issued; a get, in check mode, when
// it is waited for.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <string>

#include "toolchain/sunway/emulator/debug_info.h"
#include "toolchain/sunway/emulator/host_process.h"
#include "toolchain/sunway/emulator/machine.h"
#include "toolchain/sunway/emulator/polls.h"
#include "toolchain/sunway/emulator/report.h"
#include "toolchain/sunway/emulator/schedule.h"
#include "toolchain/sunway/emulator/transfer.h"

namespace sunway = swamp::sunway;
using sunway::Range;
using sunway::Rma;
using sunway::Slave;
using sunway::Transfer;

namespace {

Slave& peer(Slave& slave, int id, const Rma& rma) {
  if (id < 0 || id >= sunway::machine().slaves_per_group()) {
    const std::string text =
        std::string(rma.call) + ": got slave " + std::to_string(id) +
        ", expected 0 to " +
        std::to_string(sunway::machine().slaves_per_group() - 1);
    if (sunway::machine().check) {
      sunway::report({"ldm-range", rma.pc, &slave, text});
      sunway::end_now(sunway::kReportedExit);
    }
    const sunway::Location at = sunway::locate(rma.pc);
    sunway::fail(1, at.text() + ": " + text);
  }
  return sunway::machine().slave(slave.group, id);
}

void reply(const Slave& to, volatile void* word) {
  if (word != nullptr) sunway::add_reply(sunway::as_seen_by(to, word));
}

// latency() returns the cycles of an RMA of two slaves without its bytes.
std::uint64_t latency(const Slave& a, const Slave& b) {
  const auto clusters = [](int x, int y) {
    return static_cast<std::uint64_t>(std::abs(x / 2 - y / 2));
  };
  return swamp::predict::kRmaLatency +
         swamp::predict::kRmaHop *
             (clusters(a.id % sunway::kRowLength, b.id % sunway::kRowLength) +
              clusters(a.id / sunway::kRowLength, b.id / sunway::kRowLength));
}

void send(Slave& slave, Slave& other, const Rma& rma) {
  // A receiver that polls its reply word must also find the data in its inbox.
  const sunway::KeepTurn keep_turn(slave);
  std::byte* to = sunway::as_seen_by(other, rma.remote);
  if (slave.observer &&
      !slave.observer->reaches(other, to, rma.length, rma.call, rma.pc)) {
    return reply(other, rma.remote_reply);
  }
  std::memmove(to, rma.local, static_cast<std::size_t>(rma.length));
  if (&other != &slave) {
    other.rma_received.fetch_add(latency(slave, other),
                                 std::memory_order_relaxed);
  }
  if (other.observer) {
    other.observer->received(to, rma.length, slave,
                             sunway::as_seen_by(other, rma.remote_reply),
                             rma.call, rma.pc);
  }
  reply(other, rma.remote_reply);
  sunway::end_nap(other);
}

bool start(Slave& slave, const Slave& other, const Rma& rma, bool sends) {
  sunway::take_turn(slave);
  ++slave.counters.rma_requests;
  slave.counters.rma_latency += latency(slave, other);
  slave.counters.rma_bytes +=
      static_cast<std::uint64_t>(rma.length > 0 ? rma.length : 0);
  if (slave.observer) return slave.observer->allows_rma(rma, other, sends);
  return rma.length > 0;
}

// end_send() is the end of a call that sends.
int end_send(Slave& slave, const Rma& rma, bool sent) {
  if (rma.local_reply != nullptr) sunway::add_reply(rma.local_reply);
  sunway::notify_receivers();
  if (slave.observer && sent) slave.observer->sent(rma);
  return 0;
}

int put(const Rma& rma, int id) {
  Slave& slave = sunway::require_self(rma.call);
  Slave& other = peer(slave, id, rma);
  const bool sends = start(slave, other, rma, true);
  if (sends) {
    sunway::let_receivers_run(slave, other);
    send(slave, other, rma);
  } else if (other.in_ldm(sunway::as_seen_by(other, rma.remote_reply), 4)) {
    reply(other, rma.remote_reply);  // or it would hang as well
  }
  return end_send(slave, rma, sends);
}

int get(const Rma& rma, int id, bool wait) {
  Slave& slave = sunway::require_self(rma.call);
  Slave& other = peer(slave, id, rma);
  if (!start(slave, other, rma, false)) {
    if (rma.local_reply != nullptr) sunway::add_reply(rma.local_reply);
    return 0;
  }
  const Transfer t{Transfer::Kind::remote_get,
                   static_cast<std::byte*>(rma.local),
                   sunway::as_seen_by(other, rma.remote),
                   rma.length,
                   0,
                   0,
                   rma.local_reply,
                   rma.call};
  // A get onto its own source moves nothing and must not poison it.
  const bool onto_itself = t.ldm == t.main;
  if (slave.observer && !wait && !onto_itself) {
    slave.observer->issue(t, rma.pc, rma.remote_reply != nullptr);
  } else {
    sunway::carry_out(t);
    if (slave.observer) slave.observer->fetched(t, rma.pc);
    if (rma.local_reply != nullptr) sunway::add_reply(rma.local_reply);
  }
  if (slave.observer && rma.remote_reply != nullptr) {
    slave.observer->replies(sunway::as_seen_by(other, rma.remote_reply));
  }
  reply(other, rma.remote_reply);
  sunway::end_nap(other);
  sunway::notify_receivers();
  return 0;
}

// spread() sends to all of the range, the sender included unless `others`.
int spread(const Rma& rma, Range range, unsigned mask, bool others) {
  Slave& slave = sunway::require_self(rma.call);
  const bool sends = start(slave, slave, rma, true);
  if (sends) {
    sunway::let_receivers_run(slave, range, mask);
    sunway::for_range(slave, range, mask, [&](Slave& other) {
      if (&other != &slave) send(slave, other, rma);
    });
    bool own = false;
    sunway::for_range(slave, range, mask,
                      [&](Slave& other) { own |= &other == &slave; });
    if (own && !others) send(slave, slave, rma);
  }
  return end_send(slave, rma, sends);
}

int collect(const Rma& rma, Range range, bool is_root, bool others) {
  Slave& slave = sunway::require_self(rma.call);
  sunway::wait_at_barrier(slave, range, rma.call, rma.pc);
  if (is_root) spread(rma, range, ~0u, others);
  sunway::wait_at_barrier(slave, range, rma.call, rma.pc);
  return 0;
}

}  // namespace

extern "C" {

#pragma GCC visibility push(default)

int athread_rma_iget(void* local, volatile void* local_reply, int length,
                     int id, void* remote, volatile void* remote_reply) {
  return get({local, local_reply, length, remote, remote_reply, "rma_iget",
              SWAMP_SUNWAY_CALLER()},
             id, false);
}
int athread_rma_iput(void* local, volatile void* local_reply, int length,
                     int id, void* remote, volatile void* remote_reply) {
  return put({local, local_reply, length, remote, remote_reply, "rma_iput",
              SWAMP_SUNWAY_CALLER()},
             id);
}
int athread_rma_get(void* local, int length, int id, void* remote,
                    volatile void* remote_reply) {
  return get({local, nullptr, length, remote, remote_reply, "rma_get",
              SWAMP_SUNWAY_CALLER()},
             id, true);
}
int athread_rma_put(void* local, int length, int id, void* remote,
                    volatile void* remote_reply) {
  return put({local, nullptr, length, remote, remote_reply, "rma_put",
              SWAMP_SUNWAY_CALLER()},
             id);
}
int athread_rma_wait_value(volatile void* word, int value) {
  sunway::wait_reply("rma_wait_value", word, value, SWAMP_SUNWAY_CALLER());
  return 0;
}
int athread_rma_barrier() {
  Slave& slave = sunway::require_self("rma_barrier");
  if (slave.observer) slave.observer->rma_barrier();
  return 0;
}
int athread_rma_all_barrier() { return athread_rma_barrier(); }

#define SWAMP_COPY void *to, void *from
#define SWAMP_LOCAL volatile void* local
#define SWAMP_REMOTE volatile void* remote
// A send has a second name, by which the sender does not receive.
#define SWAMP_SPREAD(name, parameters, local, range, mask)               \
  int athread_##name parameters {                                        \
    return spread(                                                       \
        {from, local, length, to, remote, #name, SWAMP_SUNWAY_CALLER()}, \
        range, mask, false);                                             \
  }                                                                      \
  int athread_##name##_other parameters {                                \
    return spread({from, local, length, to, remote, #name "_other",      \
                   SWAMP_SUNWAY_CALLER()},                               \
                  range, mask, true);                                    \
  }
SWAMP_SPREAD(rma_bcast, (SWAMP_COPY, int length, SWAMP_REMOTE), nullptr,
             Range::array, ~0u)
SWAMP_SPREAD(rma_ibcast, (SWAMP_COPY, SWAMP_LOCAL, int length, SWAMP_REMOTE),
             local, Range::array, ~0u)
SWAMP_SPREAD(rma_row_bcast, (SWAMP_COPY, int length, SWAMP_REMOTE), nullptr,
             Range::row, ~0u)
SWAMP_SPREAD(rma_col_bcast, (SWAMP_COPY, int length, SWAMP_REMOTE), nullptr,
             Range::column, ~0u)
SWAMP_SPREAD(rma_row_ibcast,
             (SWAMP_COPY, int length, SWAMP_LOCAL, SWAMP_REMOTE), local,
             Range::row, ~0u)
SWAMP_SPREAD(rma_col_ibcast,
             (SWAMP_COPY, int length, SWAMP_LOCAL, SWAMP_REMOTE), local,
             Range::column, ~0u)
#define SWAMP_MASK static_cast<unsigned>(mask) & 0xffu
SWAMP_SPREAD(rma_row_mcast, (SWAMP_COPY, int length, int mask, SWAMP_REMOTE),
             nullptr, Range::row, SWAMP_MASK)
SWAMP_SPREAD(rma_col_mcast, (SWAMP_COPY, int length, int mask, SWAMP_REMOTE),
             nullptr, Range::column, SWAMP_MASK)
SWAMP_SPREAD(rma_row_imcast,
             (SWAMP_COPY, int length, SWAMP_LOCAL, int mask, SWAMP_REMOTE),
             local, Range::row, SWAMP_MASK)
SWAMP_SPREAD(rma_col_imcast,
             (SWAMP_COPY, int length, SWAMP_LOCAL, int mask, SWAMP_REMOTE),
             local, Range::column, SWAMP_MASK)

// `place` is the number of a slave in the range.
#define SWAMP_COLLECT(name, range, place)                                   \
  int athread_##name(SWAMP_COPY, int length, int root) {                    \
    const int id = sunway::require_self(#name).id;                          \
    return collect(                                                         \
        {from, nullptr, length, to, nullptr, #name, SWAMP_SUNWAY_CALLER()}, \
        range, (place) == root, false);                                     \
  }                                                                         \
  int athread_##name##_other(SWAMP_COPY, int length, int root) {            \
    const int id = sunway::require_self(#name "_other").id;                 \
    return collect({from, nullptr, length, to, nullptr, #name "_other",     \
                    SWAMP_SUNWAY_CALLER()},                                 \
                   range, (place) == root, true);                           \
  }
SWAMP_COLLECT(rma_bcast_coll, Range::array, id)
SWAMP_COLLECT(rma_row_bcast_coll, Range::row, id % sunway::kRowLength)
SWAMP_COLLECT(rma_col_bcast_coll, Range::column, id / sunway::kRowLength)

#pragma GCC visibility pop

}  // extern "C"
