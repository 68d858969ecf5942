/* dma.h: transfers between main memory and LDM. Lengths, block sizes and
 * strides are bytes; a stride is the gap between two blocks in main memory. */
#ifndef SWAMP_SUNWAY_DMA_H_
#define SWAMP_SUNWAY_DMA_H_

#include <swamp_sunway/side.h>

SWAMP_SUNWAY_BEGIN

int athread_dma_get(void* ldm, void* main, int length);
int athread_dma_get_stride(void* ldm, void* main, int length, int block,
                           int stride);
int athread_dma_iget(void* ldm, void* main, int length, volatile void* reply);
int athread_dma_iget_stride(void* ldm, void* main, int length, int block,
                            int stride, volatile void* reply);
int athread_dma_put(void* main, void* ldm, int length);
int athread_dma_put_stride(void* main, void* ldm, int length, int block,
                           int stride);
int athread_dma_iput(void* main, void* ldm, int length, volatile void* reply);
int athread_dma_iput_stride(void* main, void* ldm, int length, int block,
                            int stride, volatile void* reply);
/* Returns when *reply >= value. */
int athread_dma_wait_value(volatile void* reply, int value);
int athread_dma_barrier(void);
int athread_dma_all_barrier(void);

/* Called by one slave; all slaves of its array (row, column) receive. */
int athread_dma_bcast(void* ldm, void* main, int length, volatile void* reply);
int athread_dma_ibcast(void* ldm, void* main, int length, volatile void* reply);
int athread_dma_ibcast_stride(void* ldm, void* main, int length, int block,
                              int stride, volatile void* reply);
int athread_dma_row_ibcast(void* ldm, void* main, int length,
                           volatile void* reply);
int athread_dma_col_ibcast(void* ldm, void* main, int length,
                           volatile void* reply);
int athread_dma_row_ibcast_stride(void* ldm, void* main, int length, int block,
                                  int stride, volatile void* reply);
int athread_dma_col_ibcast_stride(void* ldm, void* main, int length, int block,
                                  int stride, volatile void* reply);
/* Called by all slaves of the array (row, column). */
int athread_dma_bcast_coll(void* ldm, void* main, int length);
int athread_dma_bcast_stride_coll(void* ldm, void* main, int length, int block,
                                  int stride);
int athread_dma_row_bcast_coll(void* ldm, void* main, int length);
int athread_dma_col_bcast_coll(void* ldm, void* main, int length);
int athread_dma_row_bcast_stride_coll(void* ldm, void* main, int length,
                                      int block, int stride);
int athread_dma_col_bcast_stride_coll(void* ldm, void* main, int length,
                                      int block, int stride);

/* Copies into and out of LDM that the array shares (__thread_local_share). */
#define MEM_TO_CACHE 0x90001000
#define CACHE_TO_MEM 0x90002000
#define MEM_TO_LDM MEM_TO_CACHE
#define LDM_TO_MEM CACHE_TO_MEM
int athread_memcpy_sldm(void* to, void* from, int length, int direction);
int athread_sldm_get(void* to, void* from, int length);

#define CRTS_dma_get athread_dma_get
#define CRTS_dma_get_stride athread_dma_get_stride
#define CRTS_dma_iget athread_dma_iget
#define CRTS_dma_iget_stride athread_dma_iget_stride
#define CRTS_dma_put athread_dma_put
#define CRTS_dma_put_stride athread_dma_put_stride
#define CRTS_dma_iput athread_dma_iput
#define CRTS_dma_iput_stride athread_dma_iput_stride
#define CRTS_dma_wait_value athread_dma_wait_value
#define CRTS_dma_barrier athread_dma_barrier
#define CRTS_dma_all_barrier athread_dma_all_barrier
#define CRTS_dma_ibcast athread_dma_ibcast
#define CRTS_dma_ibcast_stride athread_dma_ibcast_stride
#define CRTS_dma_row_ibcast athread_dma_row_ibcast
#define CRTS_dma_col_ibcast athread_dma_col_ibcast
#define CRTS_dma_bcast_coll athread_dma_bcast_coll
#define CRTS_dma_bcast_stride_coll athread_dma_bcast_stride_coll
#define CRTS_dma_row_bcast_coll athread_dma_row_bcast_coll
#define CRTS_dma_col_bcast_coll athread_dma_col_bcast_coll
#define CRTS_dma_row_ibcast_stride athread_dma_row_ibcast_stride
#define CRTS_dma_col_ibcast_stride athread_dma_col_ibcast_stride
#define CRTS_dma_row_bcast_stride_coll athread_dma_row_bcast_stride_coll
#define CRTS_dma_col_bcast_stride_coll athread_dma_col_bcast_stride_coll
#define CRTS_memcpy_sldm athread_memcpy_sldm
#define CRTS_sldm_get athread_sldm_get

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
