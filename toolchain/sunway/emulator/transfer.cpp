#include "toolchain/sunway/emulator/transfer.h"

#include <cstring>

#include "toolchain/sunway/emulator/schedule.h"

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
  Counters& all = slave.counters;
  if (transfer.length <= 0) return;
  predict::Lines lines;
  for_blocks(transfer, [&](std::byte* main, std::byte*, std::size_t bytes) {
    lines.add(predict::lines_of(main, bytes));
  });
  const auto bytes = static_cast<std::uint64_t>(transfer.length);
  switch (transfer.kind) {
    case Transfer::Kind::get:
      all.get(bytes, lines);
      break;
    case Transfer::Kind::put:
      all.put(bytes, lines);
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
