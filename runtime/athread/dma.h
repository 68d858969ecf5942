// DMA of a Sunway slave core, for the tile loop.
#ifndef SWAMP_RUNTIME_ATHREAD_DMA_H_
#define SWAMP_RUNTIME_ATHREAD_DMA_H_

#include <slave.h>

#include <cstddef>
#include <cstring>

#include "runtime/ldm.h"

namespace swamp::runtime::athread {

// The machine transfers whole 4-byte words only; tiles, segments, operations
// and partial results consist of them. Every length is less than an LDM.
class AthreadDma {
 public:
  void get(void* ldm, const void* main, std::size_t bytes, Reply* reply) {
    CRTS_dma_iget(ldm, const_cast<void*>(main), static_cast<int>(bytes), reply);
  }
  void put(void* main, const void* ldm, std::size_t bytes, Reply* reply) {
    CRTS_dma_iput(main, const_cast<void*>(ldm), static_cast<int>(bytes), reply);
  }
  // DMA cannot transfer less than a word.
  void load(void* ldm, const void* main, std::size_t bytes) {
    std::memcpy(ldm, main, bytes);
  }
  void store(void* main, const void* ldm, std::size_t bytes) {
    std::memcpy(main, ldm, bytes);
  }
  void wait(Reply* reply, Reply value) { CRTS_dma_wait_value(reply, value); }
};

}  // namespace swamp::runtime::athread

#endif  // SWAMP_RUNTIME_ATHREAD_DMA_H_
