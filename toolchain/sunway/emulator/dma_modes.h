// What swamp_sunway/dma.h says in C of the calls of SW26010.
#ifndef SWAMP_SUNWAY_EMULATOR_DMA_MODES_H_
#define SWAMP_SUNWAY_EMULATOR_DMA_MODES_H_

namespace swamp::sunway {

enum DmaMode {
  kPrivateMode,
  kBroadcastMode,
  kColumnMode,
  kRowBroadcastMode,
};
enum DmaOperation { kDmaPut, kDmaGet };

struct DmaDescriptor {
  int op;
  int mode;
  int length, block, stride;
  volatile void* reply;
};

}  // namespace swamp::sunway

#endif  // SWAMP_SUNWAY_EMULATOR_DMA_MODES_H_
