/* dma.h: transfers between main memory and LDM. Lengths, block sizes and
 * strides are bytes; a stride is the gap between two blocks in main memory. */
#ifndef SWAMP_SUNWAY_DMA_H_
#define SWAMP_SUNWAY_DMA_H_

#include <swamp_sunway/side.h>

SWAMP_SUNWAY_BEGIN

/* Declares a call that returns after the transfer, or one that starts it, and
 * the form NAME_stride for blocks. */
#define SWAMP_DMA_CALL(name, end, to, from)                                   \
  SWAMP_SUNWAY_CALL(name##end, void* to, void* from, int length)              \
  SWAMP_SUNWAY_CALL(name##_stride##end, void* to, void* from, int length,     \
                    int block, int stride)
#define SWAMP_DMA_START(name, to, from)                                       \
  SWAMP_SUNWAY_CALL(name, void* to, void* from, int length,                   \
                    volatile void* reply)                                     \
  SWAMP_SUNWAY_CALL(name##_stride, void* to, void* from, int length,          \
                    int block, int stride, volatile void* reply)

SWAMP_DMA_CALL(dma_get, , ldm, main)
SWAMP_DMA_START(dma_iget, ldm, main)
SWAMP_DMA_CALL(dma_put, , main, ldm)
SWAMP_DMA_START(dma_iput, main, ldm)
/* Returns when *reply >= value. */
SWAMP_SUNWAY_CALL(dma_wait_value, volatile void* reply, int value)
SWAMP_SUNWAY_CALL(dma_barrier, void)
SWAMP_SUNWAY_CALL(dma_all_barrier, void)

/* Called by one slave; all slaves of its array (row, column) receive. */
int athread_dma_bcast(void* ldm, void* main, int length, volatile void* reply);
SWAMP_DMA_START(dma_ibcast, ldm, main)
SWAMP_DMA_START(dma_row_ibcast, ldm, main)
SWAMP_DMA_START(dma_col_ibcast, ldm, main)
/* Called by all slaves of the array (row, column). */
SWAMP_DMA_CALL(dma_bcast, _coll, ldm, main)
SWAMP_DMA_CALL(dma_row_bcast, _coll, ldm, main)
SWAMP_DMA_CALL(dma_col_bcast, _coll, ldm, main)
#undef SWAMP_DMA_CALL
#undef SWAMP_DMA_START

/* Copies into and out of LDM that the array shares (__thread_local_share). */
#define MEM_TO_CACHE 0x90001000
#define CACHE_TO_MEM 0x90002000
#define MEM_TO_LDM MEM_TO_CACHE
#define LDM_TO_MEM CACHE_TO_MEM
SWAMP_SUNWAY_CALL(memcpy_sldm, void* to, void* from, int length, int direction)
SWAMP_SUNWAY_CALL(sldm_get, void* to, void* from, int length)


/* The calls of SW26010: source first, stride before block. */
typedef enum {
  PE_MODE,
  BCAST_MODE, /* all slaves of the array receive */
  COL_MODE,   /* Pro: the slave's column receives */
  BROW_MODE   /* the slave's row receives */
} dma_mode;
typedef enum {
  DMA_PUT,
  DMA_GET,
  DMA_BARRIER = 5,
  ALL_BARRIER = 6
} DMA_OP;
int swamp_dma_distributed(void)
    SWAMP_SUNWAY_REFUSE("ROW_MODE and RANK_MODE DMA are not emulated");
#define ROW_MODE ((dma_mode)swamp_dma_distributed())
#define RANK_MODE ((dma_mode)swamp_dma_distributed())
int athread_get(dma_mode mode, void* main, void* ldm, int length,
                volatile void* reply, char mask, int stride, int block);
int athread_put(dma_mode mode, void* ldm, void* main, int length,
                volatile void* reply, int stride, int block);

#ifndef __cplusplus
/* Descriptors of SW26010's <dma.h>, whose slave compiler had no C++. As on the
 * machine, they are set to 0 like a number, and the instruction dma reads them:
 * inline assembly makes the same words. Programs that bring a copy of the
 * vendor's header get this one. */
#define _DMA_H_INCLUDED
__extension__ typedef _Complex unsigned __int128 dma_desc;
typedef unsigned long swamp_dma_word __attribute__((__may_alias__));
/* Puts `bits` bits of `value` into a word of a descriptor. */
#define SWAMP_DMA_SET(d, word, shift, bits, value)                       \
  ((void)(((swamp_dma_word*)(void*)(d))[word] =                          \
              (((swamp_dma_word*)(void*)(d))[word] &                     \
               ~((~0ul >> (64 - (bits))) << (shift))) |                  \
              ((unsigned long)(value) & (~0ul >> (64 - (bits)))) << (shift)))
#define dma_set_size(d, value) SWAMP_DMA_SET(d, 0, 0, 32, value)
#define dma_set_bsize(d, value) SWAMP_DMA_SET(d, 0, 32, 24, value)
#define dma_set_op(d, value) SWAMP_DMA_SET(d, 0, 56, 4, value)
#define dma_set_mode(d, value) SWAMP_DMA_SET(d, 0, 60, 4, value)
#define dma_set_reply(d, value) SWAMP_DMA_SET(d, 1, 0, 32, value)
#define dma_set_stepsize(d, value) SWAMP_DMA_SET(d, 1, 32, 32, value)
#define dma_set_mask(d, value) ((void)(value))
void swamp_dma_descriptor(const void* descriptor, void* main, void* ldm);
#define dma_descriptor_init(d, word)                  \
  (*(d) = 0, dma_set_reply(d, word))
#define dma(d, main, ldm) \
  swamp_dma_descriptor(&(d), (void*)(main), (void*)(ldm))
#endif
#define dma_wait(reply, value) ((void)athread_dma_wait_value(reply, value))

SWAMP_SUNWAY_END

#endif /* SWAMP_SUNWAY_DMA_H_ */
