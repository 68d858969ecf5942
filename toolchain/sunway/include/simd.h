/* simd.h: short vectors, as vector types of GCC; arithmetic uses C's operators.
 * The widths are those of SW26010-Pro's slaves; those of its master and of
 * SW26010 are 256 bits. */
#ifndef SWAMP_SUNWAY_SIMD_H_
#define SWAMP_SUNWAY_SIMD_H_

#include <stdio.h>
#include <swamp_sunway/side.h>
#include <swamp_sunway/simd_types.h>

SWAMP_SUNWAY_BEGIN
/* A slave that loads or stores a vector at an address that is not a multiple of
 * its size raises an exception. Check mode reports it. */
void swamp_simd_misaligned(const volatile void* address, int bytes);
SWAMP_SUNWAY_END

#define SWAMP_SIMD_ALIGNED(p, bytes)                           \
  ((uintptr_t)(p) % (bytes) != 0                               \
       ? swamp_simd_misaligned((const void*)(p), (int)(bytes)) \
       : (void)0)
#define simd_loadu(v, p)                                \
  ({                                                    \
    typedef __typeof__(v) swamp_vector                  \
        __attribute__((__aligned__(2), __may_alias__));         \
    (v) = *(const swamp_vector*)(const void*)(p);       \
    (v);                                                \
  })
#define simd_storeu(v, p)                               \
  ({                                                    \
    typedef __typeof__(v) swamp_vector                  \
        __attribute__((__aligned__(2), __may_alias__));         \
    *(swamp_vector*)(void*)(p) = (v);                   \
    (void)0;                                            \
  })
#define simd_load(v, p)               \
  ({                                  \
    SWAMP_SIMD_ALIGNED(p, sizeof(v)); \
    simd_loadu(v, p);                 \
  })
#define simd_store(v, p)              \
  ({                                  \
    SWAMP_SIMD_ALIGNED(p, sizeof(v)); \
    simd_storeu(v, p);                \
  })
#define simd_load_u simd_loadu
#define simd_store_u simd_storeu
/* Register communication of SW26010, to the slave `to` of the row or column; 8
 * and more are all of them. */
#define simd_putr __builtin_sw64_putR
#define simd_putc __builtin_sw64_putC
#define simd_getr __builtin_sw64_getxR
#define simd_getc __builtin_sw64_getxC
/* One element in all lanes. */
#define simd_loade(v, p) ((v) = (__typeof__(v)){} + *(p))

#include <swamp_sunway/simd_lanes.h>
#include <swamp_sunway/simd_elements.h>
#include <swamp_sunway/simd_names.h>

#endif /* SWAMP_SUNWAY_SIMD_H_ */
