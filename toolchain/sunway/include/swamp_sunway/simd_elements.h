/* simd_elements.h: vectors made of elements, elements of vectors, lanes in
 * another order, and vectors as text. */
#ifndef SWAMP_SUNWAY_SIMD_ELEMENTS_H_
#define SWAMP_SUNWAY_SIMD_ELEMENTS_H_

#define SWAMP_SIMD static __inline__ \
  __attribute__((__always_inline__, __unused__))
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
SWAMP_SIMD uintv8 simd_set_uintv8(unsigned x0, unsigned x1, unsigned x2, unsigned x3, unsigned x4, unsigned x5, unsigned x6, unsigned x7) {
  uintv8 v = {x0, x1, x2, x3, x4, x5, x6, x7};
  return v;
}
SWAMP_SIMD intv16 simd_set_intv16(int x0, int x1, int x2, int x3, int x4, int x5, int x6, int x7, int x8, int x9, int x10, int x11, int x12, int x13, int x14, int x15) {
  intv16 v = {x0, x1, x2, x3, x4, x5, x6, x7, x8, x9, x10, x11, x12, x13, x14, x15};
  return v;
}
SWAMP_SIMD uintv16 simd_set_uintv16(unsigned x0, unsigned x1, unsigned x2, unsigned x3, unsigned x4, unsigned x5, unsigned x6, unsigned x7, unsigned x8, unsigned x9, unsigned x10, unsigned x11, unsigned x12, unsigned x13, unsigned x14, unsigned x15) {
  uintv16 v = {x0, x1, x2, x3, x4, x5, x6, x7, x8, x9, x10, x11, x12, x13, x14, x15};
  return v;
}
SWAMP_SIMD int256 simd_set_int256(long x0, long x1, long x2, long x3) {
  int256 v = {x0, x1, x2, x3};
  return v;
}
SWAMP_SIMD uint256 simd_set_uint256(unsigned long x0, unsigned long x1, unsigned long x2, unsigned long x3) {
  uint256 v = {x0, x1, x2, x3};
  return v;
}
SWAMP_SIMD int512 simd_set_int512(long x0, long x1, long x2, long x3, long x4, long x5, long x6, long x7) {
  int512 v = {x0, x1, x2, x3, x4, x5, x6, x7};
  return v;
}
SWAMP_SIMD uint512 simd_set_uint512(unsigned long x0, unsigned long x1, unsigned long x2, unsigned long x3, unsigned long x4, unsigned long x5, unsigned long x6, unsigned long x7) {
  uint512 v = {x0, x1, x2, x3, x4, x5, x6, x7};
  return v;
}
SWAMP_SIMD float16v32 simd_set_float16v32(_Float16 x0, _Float16 x1, _Float16 x2, _Float16 x3, _Float16 x4, _Float16 x5, _Float16 x6, _Float16 x7, _Float16 x8, _Float16 x9, _Float16 x10, _Float16 x11, _Float16 x12, _Float16 x13, _Float16 x14, _Float16 x15, _Float16 x16, _Float16 x17, _Float16 x18, _Float16 x19, _Float16 x20, _Float16 x21, _Float16 x22, _Float16 x23, _Float16 x24, _Float16 x25, _Float16 x26, _Float16 x27, _Float16 x28, _Float16 x29, _Float16 x30, _Float16 x31) {
  float16v32 v = {x0, x1, x2, x3, x4, x5, x6, x7, x8, x9, x10, x11, x12, x13, x14, x15, x16, x17, x18, x19, x20, x21, x22, x23, x24, x25, x26, x27, x28, x29, x30, x31};
  return v;
}

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
#define SWAMP_SIMD_INSERT(e, v, n) \
  ({                               \
    SWAMP_AUTO swamp_x = (v);           \
    swamp_x[n] = (e);                   \
    swamp_x;                            \
  })
#define SWAMP_SIMD_EXTRACT(v, n) ((v)[n])
#define simd_vinsf(e, v, n) SWAMP_SIMD_INSERT(e, v, n)
#define simd_vextf(v, n) SWAMP_SIMD_EXTRACT(v, n)
#define simd_vinsf0(e, v) SWAMP_SIMD_INSERT(e, v, 0)
#define simd_vextf0(v) SWAMP_SIMD_EXTRACT(v, 0)
#define simd_vinsf1(e, v) SWAMP_SIMD_INSERT(e, v, 1)
#define simd_vextf1(v) SWAMP_SIMD_EXTRACT(v, 1)
#define simd_vinsf2(e, v) SWAMP_SIMD_INSERT(e, v, 2)
#define simd_vextf2(v) SWAMP_SIMD_EXTRACT(v, 2)
#define simd_vinsf3(e, v) SWAMP_SIMD_INSERT(e, v, 3)
#define simd_vextf3(v) SWAMP_SIMD_EXTRACT(v, 3)
#define simd_vinsfs(e, v, n) SWAMP_SIMD_INSERT(e, v, n)
#define simd_vextfs(v, n) SWAMP_SIMD_EXTRACT(v, n)
#define simd_vinsfs0(e, v) SWAMP_SIMD_INSERT(e, v, 0)
#define simd_vextfs0(v) SWAMP_SIMD_EXTRACT(v, 0)
#define simd_vinsfs1(e, v) SWAMP_SIMD_INSERT(e, v, 1)
#define simd_vextfs1(v) SWAMP_SIMD_EXTRACT(v, 1)
#define simd_vinsfs2(e, v) SWAMP_SIMD_INSERT(e, v, 2)
#define simd_vextfs2(v) SWAMP_SIMD_EXTRACT(v, 2)
#define simd_vinsfs3(e, v) SWAMP_SIMD_INSERT(e, v, 3)
#define simd_vextfs3(v) SWAMP_SIMD_EXTRACT(v, 3)
#define simd_vinsfs4(e, v) SWAMP_SIMD_INSERT(e, v, 4)
#define simd_vextfs4(v) SWAMP_SIMD_EXTRACT(v, 4)
#define simd_vinsfs5(e, v) SWAMP_SIMD_INSERT(e, v, 5)
#define simd_vextfs5(v) SWAMP_SIMD_EXTRACT(v, 5)
#define simd_vinsfs6(e, v) SWAMP_SIMD_INSERT(e, v, 6)
#define simd_vextfs6(v) SWAMP_SIMD_EXTRACT(v, 6)
#define simd_vinsfs7(e, v) SWAMP_SIMD_INSERT(e, v, 7)
#define simd_vextfs7(v) SWAMP_SIMD_EXTRACT(v, 7)
#define simd_vinsfd(e, v, n) SWAMP_SIMD_INSERT(e, v, n)
#define simd_vextfd(v, n) SWAMP_SIMD_EXTRACT(v, n)
#define simd_vinsfd0(e, v) SWAMP_SIMD_INSERT(e, v, 0)
#define simd_vextfd0(v) SWAMP_SIMD_EXTRACT(v, 0)
#define simd_vinsfd1(e, v) SWAMP_SIMD_INSERT(e, v, 1)
#define simd_vextfd1(v) SWAMP_SIMD_EXTRACT(v, 1)
#define simd_vinsfd2(e, v) SWAMP_SIMD_INSERT(e, v, 2)
#define simd_vextfd2(v) SWAMP_SIMD_EXTRACT(v, 2)
#define simd_vinsfd3(e, v) SWAMP_SIMD_INSERT(e, v, 3)
#define simd_vextfd3(v) SWAMP_SIMD_EXTRACT(v, 3)
#define simd_vinsfd4(e, v) SWAMP_SIMD_INSERT(e, v, 4)
#define simd_vextfd4(v) SWAMP_SIMD_EXTRACT(v, 4)
#define simd_vinsfd5(e, v) SWAMP_SIMD_INSERT(e, v, 5)
#define simd_vextfd5(v) SWAMP_SIMD_EXTRACT(v, 5)
#define simd_vinsfd6(e, v) SWAMP_SIMD_INSERT(e, v, 6)
#define simd_vextfd6(v) SWAMP_SIMD_EXTRACT(v, 6)
#define simd_vinsfd7(e, v) SWAMP_SIMD_INSERT(e, v, 7)
#define simd_vextfd7(v) SWAMP_SIMD_EXTRACT(v, 7)
#define simd_vinsw(e, v, n) SWAMP_SIMD_INSERT(e, v, n)
#define simd_vextw(v, n) SWAMP_SIMD_EXTRACT(v, n)
#define simd_vinsw0(e, v) SWAMP_SIMD_INSERT(e, v, 0)
#define simd_vextw0(v) SWAMP_SIMD_EXTRACT(v, 0)
#define simd_vinsw1(e, v) SWAMP_SIMD_INSERT(e, v, 1)
#define simd_vextw1(v) SWAMP_SIMD_EXTRACT(v, 1)
#define simd_vinsw2(e, v) SWAMP_SIMD_INSERT(e, v, 2)
#define simd_vextw2(v) SWAMP_SIMD_EXTRACT(v, 2)
#define simd_vinsw3(e, v) SWAMP_SIMD_INSERT(e, v, 3)
#define simd_vextw3(v) SWAMP_SIMD_EXTRACT(v, 3)
#define simd_vinsw4(e, v) SWAMP_SIMD_INSERT(e, v, 4)
#define simd_vextw4(v) SWAMP_SIMD_EXTRACT(v, 4)
#define simd_vinsw5(e, v) SWAMP_SIMD_INSERT(e, v, 5)
#define simd_vextw5(v) SWAMP_SIMD_EXTRACT(v, 5)
#define simd_vinsw6(e, v) SWAMP_SIMD_INSERT(e, v, 6)
#define simd_vextw6(v) SWAMP_SIMD_EXTRACT(v, 6)
#define simd_vinsw7(e, v) SWAMP_SIMD_INSERT(e, v, 7)
#define simd_vextw7(v) SWAMP_SIMD_EXTRACT(v, 7)
#define simd_vinsw8(e, v) SWAMP_SIMD_INSERT(e, v, 8)
#define simd_vextw8(v) SWAMP_SIMD_EXTRACT(v, 8)
#define simd_vinsw9(e, v) SWAMP_SIMD_INSERT(e, v, 9)
#define simd_vextw9(v) SWAMP_SIMD_EXTRACT(v, 9)
#define simd_vinsw10(e, v) SWAMP_SIMD_INSERT(e, v, 10)
#define simd_vextw10(v) SWAMP_SIMD_EXTRACT(v, 10)
#define simd_vinsw11(e, v) SWAMP_SIMD_INSERT(e, v, 11)
#define simd_vextw11(v) SWAMP_SIMD_EXTRACT(v, 11)
#define simd_vinsw12(e, v) SWAMP_SIMD_INSERT(e, v, 12)
#define simd_vextw12(v) SWAMP_SIMD_EXTRACT(v, 12)
#define simd_vinsw13(e, v) SWAMP_SIMD_INSERT(e, v, 13)
#define simd_vextw13(v) SWAMP_SIMD_EXTRACT(v, 13)
#define simd_vinsw14(e, v) SWAMP_SIMD_INSERT(e, v, 14)
#define simd_vextw14(v) SWAMP_SIMD_EXTRACT(v, 14)
#define simd_vinsw15(e, v) SWAMP_SIMD_INSERT(e, v, 15)
#define simd_vextw15(v) SWAMP_SIMD_EXTRACT(v, 15)
#define simd_vinsl(e, v, n) SWAMP_SIMD_INSERT(e, v, n)
#define simd_vextl(v, n) SWAMP_SIMD_EXTRACT(v, n)
#define simd_vinsl0(e, v) SWAMP_SIMD_INSERT(e, v, 0)
#define simd_vextl0(v) SWAMP_SIMD_EXTRACT(v, 0)
#define simd_vinsl1(e, v) SWAMP_SIMD_INSERT(e, v, 1)
#define simd_vextl1(v) SWAMP_SIMD_EXTRACT(v, 1)
#define simd_vinsl2(e, v) SWAMP_SIMD_INSERT(e, v, 2)
#define simd_vextl2(v) SWAMP_SIMD_EXTRACT(v, 2)
#define simd_vinsl3(e, v) SWAMP_SIMD_INSERT(e, v, 3)
#define simd_vextl3(v) SWAMP_SIMD_EXTRACT(v, 3)
#define simd_vinsl4(e, v) SWAMP_SIMD_INSERT(e, v, 4)
#define simd_vextl4(v) SWAMP_SIMD_EXTRACT(v, 4)
#define simd_vinsl5(e, v) SWAMP_SIMD_INSERT(e, v, 5)
#define simd_vextl5(v) SWAMP_SIMD_EXTRACT(v, 5)
#define simd_vinsl6(e, v) SWAMP_SIMD_INSERT(e, v, 6)
#define simd_vextl6(v) SWAMP_SIMD_EXTRACT(v, 6)
#define simd_vinsl7(e, v) SWAMP_SIMD_INSERT(e, v, 7)
#define simd_vextl7(v) SWAMP_SIMD_EXTRACT(v, 7)
#define simd_vinsh(e, v, n) SWAMP_SIMD_INSERT(e, v, n)
#define simd_vexth(v, n) SWAMP_SIMD_EXTRACT(v, n)

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
/* A float or double takes two words of the register, so its mask has 16
 * fields. */
#define simd_vshfs(a, b, mask) SWAMP_SIMD_SHUFFLE(a, b, mask, 5, 2)
#define simd_vshfd(a, b, mask) SWAMP_SIMD_SHUFFLE(a, b, mask, 5, 2)

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
