/* simd.h: short vectors, as GCC's own; arithmetic is C's operators. The widths
 * are those of SW26010-Pro's slaves; the master's and SW26010's are 256 bits. */
#ifndef SWAMP_SUNWAY_SIMD_H_
#define SWAMP_SUNWAY_SIMD_H_

#include <swamp_sunway/side.h>

typedef int intv16 __attribute__((vector_size(64), may_alias));
typedef unsigned uintv16 __attribute__((vector_size(64), may_alias));
typedef long int512 __attribute__((vector_size(64), may_alias));
typedef unsigned long uint512 __attribute__((vector_size(64), may_alias));
typedef float floatv8 __attribute__((vector_size(32), may_alias));
typedef double doublev8 __attribute__((vector_size(64), may_alias));
typedef int intv8 __attribute__((vector_size(32), may_alias));
typedef unsigned uintv8 __attribute__((vector_size(32), may_alias));
typedef long int256 __attribute__((vector_size(32), may_alias));
typedef unsigned long uint256 __attribute__((vector_size(32), may_alias));
typedef float floatv4 __attribute__((vector_size(16), may_alias));
typedef double doublev4 __attribute__((vector_size(32), may_alias));
#ifndef __cplusplus
typedef _Float16 float16;
typedef _Float16 float16v32 __attribute__((vector_size(64), may_alias));
#endif

SWAMP_SUNWAY_BEGIN
/* A slave that loads or stores a vector at an address that is no multiple of
 * its size ends with an exception; the check reports it. */
void swamp_simd_misaligned(const volatile void* address, int bytes);
SWAMP_SUNWAY_END

#define SWAMP_SIMD_ALIGNED(p, bytes)                           \
  ((uintptr_t)(p) % (bytes) != 0                               \
       ? swamp_simd_misaligned((const void*)(p), (int)(bytes)) \
       : (void)0)
#define simd_loadu(v, p)                                              \
  do {                                                                \
    typedef __typeof__(v) swamp_vector                                \
        __attribute__((aligned(2), may_alias));                       \
    (v) = *(const swamp_vector*)(const void*)(p);                     \
  } while (0)
#define simd_storeu(v, p)                                             \
  do {                                                                \
    typedef __typeof__(v) swamp_vector                                \
        __attribute__((aligned(2), may_alias));                       \
    *(swamp_vector*)(void*)(p) = (v);                                 \
  } while (0)
#define simd_load(v, p)                    \
  do {                                     \
    SWAMP_SIMD_ALIGNED(p, sizeof(v));      \
    simd_loadu(v, p);                      \
  } while (0)
#define simd_store(v, p)                   \
  do {                                     \
    SWAMP_SIMD_ALIGNED(p, sizeof(v));      \
    simd_storeu(v, p);                     \
  } while (0)

/* One element in all lanes. */
#define simd_loade(v, p) ((v) = (v) * 0 + *(p))
#define simd_vcpyd(x) ((doublev8){} + (double)(x))
#define simd_vcpys(x) ((floatv8){} + (float)(x))
#define simd_vcpyw(x) ((intv16){} + (int)(x))

#define simd_vaddd(a, b) ((a) + (b))
#define simd_vadds(a, b) ((a) + (b))
#define simd_vaddw(a, b) ((a) + (b))
#define simd_vaddl(a, b) ((a) + (b))
#define simd_vsubd(a, b) ((a) - (b))
#define simd_vsubs(a, b) ((a) - (b))
#define simd_vsubw(a, b) ((a) - (b))
#define simd_vsubl(a, b) ((a) - (b))
#define simd_vmuld(a, b) ((a) * (b))
#define simd_vmuls(a, b) ((a) * (b))
#define simd_vmulw(a, b) ((a) * (b))
#define simd_vdivd(a, b) ((a) / (b))
#define simd_vdivs(a, b) ((a) / (b))

#define SWAMP_SIMD static inline __attribute__((always_inline, unused))
SWAMP_SIMD doublev8 simd_set_doublev8(double x0, double x1, double x2, double x3, double x4, double x5, double x6, double x7) {
  doublev8 v = {x0, x1, x2, x3, x4, x5, x6, x7};
  return v;
}
SWAMP_SIMD floatv8 simd_set_floatv8(float x0, float x1, float x2, float x3, float x4, float x5, float x6, float x7) {
  floatv8 v = {x0, x1, x2, x3, x4, x5, x6, x7};
  return v;
}
SWAMP_SIMD doublev4 simd_set_doublev4(double x0, double x1, double x2, double x3) {
  doublev4 v = {x0, x1, x2, x3};
  return v;
}
SWAMP_SIMD floatv4 simd_set_floatv4(float x0, float x1, float x2, float x3) {
  floatv4 v = {x0, x1, x2, x3};
  return v;
}
SWAMP_SIMD intv8 simd_set_intv8(int x0, int x1, int x2, int x3, int x4, int x5, int x6, int x7) {
  intv8 v = {x0, x1, x2, x3, x4, x5, x6, x7};
  return v;
}
SWAMP_SIMD intv16 simd_set_intv16(int x0, int x1, int x2, int x3, int x4, int x5, int x6, int x7, int x8, int x9, int x10, int x11, int x12, int x13, int x14, int x15) {
  intv16 v = {x0, x1, x2, x3, x4, x5, x6, x7, x8, x9, x10, x11, x12, x13, x14, x15};
  return v;
}
SWAMP_SIMD int512 simd_set_int512(long x0, long x1, long x2, long x3, long x4, long x5, long x6, long x7) {
  int512 v = {x0, x1, x2, x3, x4, x5, x6, x7};
  return v;
}

/* Lane by lane, rounded once: a*b+c, a*b-c, -a*b+c, -a*b-c. */
#define SWAMP_SIMD_FUSED(vector, lanes, fma)                                 \
  SWAMP_SIMD vector swamp_vma_##vector(vector a, vector b, vector c) {       \
    vector v;                                                                \
    for (int i = 0; i < lanes; ++i) v[i] = __builtin_##fma(a[i], b[i], c[i]); \
    return v;                                                                \
  }                                                                          \
  SWAMP_SIMD vector swamp_sqrt_##vector(vector a) {                          \
    for (int i = 0; i < lanes; ++i) a[i] = __builtin_sqrt(a[i]);             \
    return a;                                                                \
  }                                                                          \
  SWAMP_SIMD vector swamp_max_##vector(vector a, vector b) {                 \
    for (int i = 0; i < lanes; ++i) a[i] = a[i] < b[i] ? b[i] : a[i];        \
    return a;                                                                \
  }                                                                          \
  SWAMP_SIMD vector swamp_min_##vector(vector a, vector b) {                 \
    for (int i = 0; i < lanes; ++i) a[i] = b[i] < a[i] ? b[i] : a[i];        \
    return a;                                                                \
  }                                                                          \
  SWAMP_SIMD double swamp_sum_##vector(vector a) {                           \
    double sum = 0;                                                          \
    for (int i = 0; i < lanes; ++i) sum += a[i];                             \
    return sum;                                                              \
  }
SWAMP_SIMD_FUSED(doublev8, 8, fma)
SWAMP_SIMD_FUSED(doublev4, 4, fma)
SWAMP_SIMD_FUSED(floatv8, 8, fmaf)
SWAMP_SIMD_FUSED(floatv4, 4, fmaf)
#undef SWAMP_SIMD_FUSED

#ifdef __cplusplus
extern "C++" {
#define SWAMP_SIMD_OVERLOADS(vector)                                 \
  SWAMP_SIMD vector swamp_vma(vector a, vector b, vector c) {        \
    return swamp_vma_##vector(a, b, c);                              \
  }                                                                  \
  SWAMP_SIMD vector swamp_sqrt(vector a) { return swamp_sqrt_##vector(a); } \
  SWAMP_SIMD vector swamp_max(vector a, vector b) {                  \
    return swamp_max_##vector(a, b);                                 \
  }                                                                  \
  SWAMP_SIMD vector swamp_min(vector a, vector b) {                  \
    return swamp_min_##vector(a, b);                                 \
  }
SWAMP_SIMD_OVERLOADS(doublev8)
SWAMP_SIMD_OVERLOADS(doublev4)
SWAMP_SIMD_OVERLOADS(floatv8)
SWAMP_SIMD_OVERLOADS(floatv4)
#undef SWAMP_SIMD_OVERLOADS
}
#else
#define SWAMP_SIMD_PICK(name, v)                                             \
  _Generic((v), doublev8: swamp_##name##_doublev8,                           \
           doublev4: swamp_##name##_doublev4,                                \
           floatv8: swamp_##name##_floatv8, floatv4: swamp_##name##_floatv4)
#define swamp_vma(a, b, c) SWAMP_SIMD_PICK(vma, a)(a, b, c)
#define swamp_sqrt(a) SWAMP_SIMD_PICK(sqrt, a)(a)
#define swamp_max(a, b) SWAMP_SIMD_PICK(max, a)(a, b)
#define swamp_min(a, b) SWAMP_SIMD_PICK(min, a)(a, b)
#endif
#define simd_vmad(a, b, c) swamp_vma(a, b, c)
#define simd_vmas(a, b, c) swamp_vma(a, b, c)
#define simd_vmsd(a, b, c) swamp_vma(a, b, -(c))
#define simd_vmss(a, b, c) swamp_vma(a, b, -(c))
#define simd_vnmad(a, b, c) swamp_vma(-(a), b, c)
#define simd_vnmas(a, b, c) swamp_vma(-(a), b, c)
#define simd_vsqrtd(a) swamp_sqrt(a)
#define simd_vsqrts(a) swamp_sqrt(a)
#define simd_smaxd(a, b) swamp_max(a, b)
#define simd_smaxs(a, b) swamp_max(a, b)
#define simd_smind(a, b) swamp_min(a, b)
#define simd_smins(a, b) swamp_min(a, b)
#define simd_vfrecd(a) (1.0 / (a))
#define simd_vfrecs(a) (1.0f / (a))
#define simd_reduc_plusd(a) swamp_sum_doublev8(a)
#define simd_reduc_pluss(a) ((float)swamp_sum_floatv8(a))

/* Lane i of the result is chosen by bits 4i..4i+3 of the mask's first words: a
 * lane of a (0 to 7) or, with 8 added, of b. */
SWAMP_SIMD floatv8 simd_vshfs(floatv8 a, floatv8 b, intv16 mask) {
  floatv8 v;
  for (int i = 0; i < 8; ++i) {
    const int lane = (int)((unsigned)mask[0] >> (4 * i) & 15u);
    v[i] = lane < 8 ? a[lane] : b[lane - 8];
  }
  return v;
}
SWAMP_SIMD doublev8 simd_vshfd(doublev8 a, doublev8 b, intv16 mask) {
  doublev8 v;
  for (int i = 0; i < 8; ++i) {
    const int lane = (int)((unsigned)mask[0] >> (4 * i) & 15u);
    v[i] = lane < 8 ? a[lane] : b[lane - 8];
  }
  return v;
}

#ifndef __cplusplus
/* Half precision: lanes 8*part to 8*part+7 as floats, and floats into those lanes
 * of a vector that is zero elsewhere. */
SWAMP_SIMD floatv8 simd_vfcvths(float16v32 a, int part) {
  floatv8 v;
  for (int i = 0; i < 8; ++i) v[i] = (float)a[8 * part + i];
  return v;
}
SWAMP_SIMD float16v32 simd_vfcvtsh(floatv8 a, int part) {
  float16v32 v = {};
  for (int i = 0; i < 8; ++i) v[8 * part + i] = (_Float16)a[i];
  return v;
}
#endif

#endif /* SWAMP_SUNWAY_SIMD_H_ */
