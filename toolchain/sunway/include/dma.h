/* dma.h: the DMA descriptors of SW26010 are in <swamp_sunway/dma.h>. */
#ifndef SWAMP_SUNWAY_OLD_DMA_H_
#define SWAMP_SUNWAY_OLD_DMA_H_

#include <athread.h>

#endif /* SWAMP_SUNWAY_OLD_DMA_H_ */
