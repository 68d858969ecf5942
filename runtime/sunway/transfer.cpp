#include "runtime/sunway/transfer.h"

#include <cstring>

#include "runtime/sunway/schedule.h"

namespace swamp::sunway {

std::size_t Transfer::extent() const noexcept {
  if (length <= 0) return 0;
  if (stride == 0 || block <= 0) return static_cast<std::size_t>(length);
  const long blocks = (length + block - 1) / block;
  return static_cast<std::size_t>(length + (blocks - 1) * stride);
}

void carry_out(const Transfer& transfer) noexcept {
  if (transfer.writes_main()) {
    for_blocks(transfer, [](std::byte* main, std::byte* ldm, std::size_t n) {
      std::memcpy(main, ldm, n);
    });
  } else {
    for_blocks(transfer, [](std::byte* main, std::byte* ldm, std::size_t n) {
      std::memcpy(ldm, main, n);
    });
  }
}

void add_reply(volatile void* reply) noexcept {
  __atomic_fetch_add(static_cast<volatile int*>(reply), 1, __ATOMIC_RELEASE);
}

int read_reply(const volatile void* reply) noexcept {
  return __atomic_load_n(static_cast<const volatile int*>(reply),
                         __ATOMIC_ACQUIRE);
}

void count(Slave& slave, const Transfer& transfer) noexcept {
  constexpr std::uintptr_t kLine = 128;
  Counters& all = slave.counters;
  if (transfer.length <= 0) return;
  std::uint64_t lines = 0;
  std::uint64_t full = 0;
  std::uint64_t partial = 0;
  for_blocks(transfer, [&](std::byte* main, std::byte*, std::size_t bytes) {
    const auto begin = reinterpret_cast<std::uintptr_t>(main);
    const std::uintptr_t end = begin + bytes;
    const std::uint64_t touched = (end + kLine - 1) / kLine - begin / kLine;
    const std::uintptr_t first = (begin + kLine - 1) / kLine;
    const std::uintptr_t last = end / kLine;
    const std::uint64_t whole = last > first ? last - first : 0;
    lines += touched;
    full += whole;
    partial += touched - whole;
  });
  const auto bytes = static_cast<std::uint64_t>(transfer.length);
  switch (transfer.kind) {
    case Transfer::Kind::get:
      ++all.get_requests;
      all.get_bytes += bytes;
      all.lines_read += lines;
      all.get_latency += lines == 1 ? 441 : 470 + lines * 727 / 100;
      break;
    case Transfer::Kind::put:
      ++all.put_requests;
      all.put_bytes += bytes;
      all.lines_full += full;
      all.lines_partial += partial;
      all.put_latency += 235 + lines * 685 / 100 + (partial != 0 ? 125 : 0);
      break;
    case Transfer::Kind::remote_get:
      ++all.rma_requests;
      all.rma_bytes += bytes;
      break;
  }
}

std::byte* as_seen_by(const Slave& other, const Slave& slave,
                      const volatile void* address) noexcept {
  auto* here = static_cast<std::byte*>(const_cast<void*>(address));
  return slave.in_ldm(here, 1) ? other.slot + (here - slave.slot) : here;
}

}  // namespace swamp::sunway
