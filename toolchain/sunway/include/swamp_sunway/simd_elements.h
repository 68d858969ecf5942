/* simd_elements.h: elements of vectors, lanes in another order, and vectors as
 * text. */
#ifndef SWAMP_SUNWAY_SIMD_ELEMENTS_H_
#define SWAMP_SUNWAY_SIMD_ELEMENTS_H_

#define SWAMP_SIMD static __inline__ \
  __attribute__((__always_inline__, __unused__))

/* A vector of the side's width with one element in all lanes. */
#ifdef __sw_slave__
#define simd_vcpyfd(x) ((double)(x) - (doublev8){})
#define simd_vcpyfs(x) ((float)(x) - (floatv8){})
#define simd_vcpyw(x) ((int)(x) + (intv16){})
#define simd_vcpyl(x) ((long)(x) + (int512){})
#else
#define simd_vcpyfd(x) ((double)(x) - (doublev4){})
#define simd_vcpyfs(x) ((float)(x) - (floatv4){})
#define simd_vcpyw(x) ((int)(x) + (intv8){})
#define simd_vcpyl(x) ((long)(x) + (int256){})
#endif
SWAMP_SIMD float16v32 simd_vcpyh(_Float16 x) {
  float16v32 v;
  int i;
  for (i = 0; i < 32; ++i) v[i] = x;
  return v;
}

/* Lane n of a vector, and the vector with lane n replaced. */
#define SWAMP_SIMD_INSERT(e, v, n)               \
  ({                                             \
    SWAMP_AUTO swamp_x = (v);                    \
    swamp_x[n] = SWAMP_SIMD_NUMBER(e, swamp_x);  \
    swamp_x;                                     \
  })
/* A number; of a vector of v's type in its place, the first element. */
#ifdef __cplusplus
#define SWAMP_SIMD_NUMBER(e, v) (e)
#else
#define SWAMP_SIMD_NUMBER(e, v)                                       \
  __builtin_choose_expr(sizeof(e) == sizeof(v), ({                    \
                          __auto_type swamp_e = (e);                  \
                          *(__typeof__((v)[0])*)(void*)&swamp_e;      \
                        }),                                           \
                        (e))
#endif
#define SWAMP_SIMD_EXTRACT(v, n) ((v)[n])

/* Field i of a shuffle's mask, `bits` wide, is the index of the lane that
 * becomes lane i of the result; the lanes of a come first, then those of b. */
SWAMP_SIMD int swamp_simd_field(intv16 mask, int bits, int i) {
  const int at = i * bits;
  unsigned long two = (unsigned)mask[at / 32];
  if (at / 32 < 15) two |= (unsigned long)(unsigned)mask[at / 32 + 1] << 32;
  return (int)(two >> (at % 32) & ((1ul << bits) - 1));
}
#define SWAMP_SIMD_SHUFFLE(a, b, mask, bits, halves)                       \
  ({                                                                       \
    SWAMP_AUTO swamp_x = (a);                                                   \
    SWAMP_AUTO swamp_y = (b);                                                   \
    __typeof__(swamp_x) swamp_r = swamp_x;                                                \
    int swamp_i;                                                                \
    for (swamp_i = 0; swamp_i < SWAMP_LANES(swamp_x); ++swamp_i) {                             \
      const int swamp_lane = swamp_simd_field(mask, bits, swamp_i * halves) / halves; \
      swamp_r[swamp_i] = swamp_lane < SWAMP_LANES(swamp_x) ? swamp_x[swamp_lane]                         \
                                       : swamp_y[swamp_lane - SWAMP_LANES(swamp_x)];      \
    }                                                                      \
    swamp_r;                                                                    \
  })
#define simd_vshfw(a, b, mask) SWAMP_SIMD_SHUFFLE(a, b, mask, 5, 1)
#define simd_vshfh(a, b, mask) SWAMP_SIMD_SHUFFLE(a, b, mask, 6, 1)
/* The shuffle of SW26010, by four numbers of two bits: lanes 0 and 1 come from
 * b, lanes 2 and 3 from a. */
#define simd_vshff(a, b, mask)                                     \
  ({                                                               \
    SWAMP_AUTO swamp_x = (a);                                           \
    SWAMP_AUTO swamp_y = (b);                                           \
    const int swamp_m = (int)(mask);                                    \
    __typeof__(swamp_x) swamp_r = {swamp_y[swamp_m & 3], swamp_y[swamp_m >> 2 & 3],              \
                         swamp_x[swamp_m >> 4 & 3], swamp_x[swamp_m >> 6 & 3]};        \
    swamp_r;                                                            \
  })

/* Half precision: converts lanes part, part + 4, part + 8... to floats, and
 * floats to those lanes of a vector that is zero elsewhere. */
SWAMP_SIMD floatv8 simd_vfcvths(float16v32 a, int part) {
  floatv8 v = {};
  int i;
  for (i = 0; i < 8; ++i) v[i] = (float)a[4 * i + part];
  return v;
}
SWAMP_SIMD float16v32 simd_vfcvtsh(floatv8 a, int part) {
  float16v32 v = {};
  int i;
  for (i = 0; i < 8; ++i) v[4 * i + part] = (_Float16)a[i];
  return v;
}

/* Vectors as text, the highest lane first. */
#define SWAMP_SIMD_PRINT(vector, lanes, format, type)                  \
  SWAMP_SIMD void simd_fprint_##vector(FILE* file, vector v) {         \
    int i;                                                             \
    fputs("[ ", file);                                                 \
    for (i = lanes - 1; i >= 0; --i) {                                 \
      fprintf(file, i == 0 ? format " ]\n" : format ", ", (type)v[i]); \
    }                                                                  \
  }                                                                    \
  SWAMP_SIMD void simd_print_##vector(vector v) {                      \
    simd_fprint_##vector(stdout, v);                                   \
  }                                                                    \
  /* The bits of the lanes. */                                         \
  SWAMP_SIMD void simd_fprint_##vector##_X(FILE* file, vector v) {     \
    int i;                                                             \
    fputs("[ ", file);                                                 \
    for (i = lanes - 1; i >= 0; --i) {                                 \
      unsigned long bits = 0;                                          \
      __builtin_memcpy(&bits, (const char*)&v + i * sizeof(v) / lanes, \
                       sizeof(v) / lanes);                             \
      fprintf(file, "%0*lx%s", (int)(2 * sizeof(v) / lanes), bits,     \
              i == 0 ? " ]\n" : ", ");                                 \
    }                                                                  \
  }                                                                    \
  SWAMP_SIMD void simd_print_##vector##_X(vector v) {                  \
    simd_fprint_##vector##_X(stdout, v);                               \
  }
SWAMP_SIMD_PRINT(doublev8, 8, "%e", double)
SWAMP_SIMD_PRINT(floatv8, 8, "%e", double)
SWAMP_SIMD_PRINT(doublev4, 4, "%e", double)
SWAMP_SIMD_PRINT(floatv4, 4, "%e", double)
SWAMP_SIMD_PRINT(float16v32, 32, "%e", double)
SWAMP_SIMD_PRINT(intv8, 8, "%d", int)
SWAMP_SIMD_PRINT(uintv8, 8, "%u", unsigned)
SWAMP_SIMD_PRINT(intv16, 16, "%d", int)
SWAMP_SIMD_PRINT(uintv16, 16, "%u", unsigned)
SWAMP_SIMD_PRINT(int256, 4, "%ld", long)
SWAMP_SIMD_PRINT(uint256, 4, "%lu", unsigned long)
SWAMP_SIMD_PRINT(int512, 8, "%ld", long)
SWAMP_SIMD_PRINT(uint512, 8, "%lu", unsigned long)
#undef SWAMP_SIMD_PRINT

#endif /* SWAMP_SUNWAY_SIMD_ELEMENTS_H_ */
