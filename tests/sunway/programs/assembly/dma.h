/* A program's copy of the vendor's dma.h; <slave.h> has its contents. */
#ifndef _DMA_H_INCLUDED
#define _DMA_H_INCLUDED
typedef int dma_desc __attribute__((__mode__(__V4SI__)));
#endif
