/* simd_lanes.h: arithmetic lane by lane, over lanes, and between lanes. The
 * last letter of a name is the type of the elements; every function takes any
 * vector of that type. */
#ifndef SWAMP_SUNWAY_SIMD_LANES_H_
#define SWAMP_SUNWAY_SIMD_LANES_H_

#ifdef __cplusplus
#define SWAMP_AUTO auto
#else
#define SWAMP_AUTO __auto_type
#endif

/* A vector of the type of `x`: lane i is `expression` of x[i], y[i], z[i]. */
#define SWAMP_LANES(vector) ((int)(sizeof(vector) / sizeof((vector)[0])))
#define SWAMP_SIMD_MAP(a, b, c, expression)                           \
  ({                                                                  \
    SWAMP_AUTO swamp_x = (a);                                              \
    SWAMP_AUTO swamp_y = (b);                                              \
    SWAMP_AUTO swamp_z = (c);                                              \
    int swamp_i;                                                           \
    for (swamp_i = 0; swamp_i < SWAMP_LANES(swamp_x); ++swamp_i) swamp_x[swamp_i] = (expression);   \
    (void)swamp_y;                                                         \
    (void)swamp_z;                                                         \
    swamp_x;                                                               \
  })
/* Combines all lanes, from lane 0 up; `r` is the result so far. */
#define SWAMP_SIMD_FOLD(type, a, expression)                          \
  ({                                                                  \
    SWAMP_AUTO swamp_x = (a);                                              \
    type swamp_r = (type)swamp_x[0];                                            \
    int swamp_i;                                                           \
    for (swamp_i = 1; swamp_i < SWAMP_LANES(swamp_x); ++swamp_i) swamp_r = (type)(expression); \
    swamp_r;                                                               \
  })

#define SWAMP_SIMD_INLINE \
  static __inline__ __attribute__((__always_inline__, __unused__))

/* Functions of what a register of the CPU holds, for SWAMP_SIMD_PARTS. */

/* The compiler may not use the instructions of fused multiply-adds by itself: it
 * would use them for other products, too, and their results would depend on the
 * CPU. */
SWAMP_SUNWAY_BEGIN
extern int swamp_simd_has_fma; /* whether the CPU has them */
/* These have the same results. */
swamp_simd_float4 swamp_simd_software_fmas(swamp_simd_float4 x,
                                           swamp_simd_float4 y,
                                           swamp_simd_float4 z);
swamp_simd_double2 swamp_simd_software_fmad(swamp_simd_double2 x,
                                            swamp_simd_double2 y,
                                            swamp_simd_double2 z);
SWAMP_SUNWAY_END
/* In assembly, because check mode examines and counts the loads of C. */
SWAMP_SIMD_INLINE int swamp_simd_fma(void) {
  unsigned long has;
  __asm__("{movq swamp_simd_has_fma@GOTPCREL(%%rip), %0|"
          "mov %0, QWORD PTR swamp_simd_has_fma@GOTPCREL[rip]}\n\t"
          "{movl (%0), %k0|mov %k0, DWORD PTR [%0]}"
          : "=r"(has));
  return (int)has;
}
#define SWAMP_SIMD_FMA_OF(vector, name, suffix) \
  SWAMP_SIMD_INLINE vector swamp_simd_fma##name(vector x, vector y, \
                                                vector z) { \
    if (__builtin_expect(!swamp_simd_fma(), 0)) { \
      return swamp_simd_software_fma##name(x, y, z); \
    } \
    __asm__("vfmadd213p" suffix " {%2, %1, %0|%0, %1, %2}" \
            : "+x"(x) \
            : "x"(y), "x"(z)); \
    return x; \
  }
SWAMP_SIMD_FMA_OF(swamp_simd_float4, s, "s")
SWAMP_SIMD_FMA_OF(swamp_simd_double2, d, "d")
#undef SWAMP_SIMD_FMA_OF
/* The compiler would call libm for errno if a lane is negative. */
SWAMP_SIMD_INLINE swamp_simd_float4 swamp_simd_sqrts(swamp_simd_float4 x,
                                                     swamp_simd_float4 y,
                                                     swamp_simd_float4 z) {
  (void)y;
  (void)z;
  return __builtin_ia32_sqrtps(x);
}
SWAMP_SIMD_INLINE swamp_simd_double2 swamp_simd_sqrtd(swamp_simd_double2 x,
                                                      swamp_simd_double2 y,
                                                      swamp_simd_double2 z) {
  (void)y;
  (void)z;
  return __builtin_ia32_sqrtpd(x);
}
SWAMP_SIMD_INLINE double swamp_simd_sqrt(double x) {
  swamp_simd_double2 all = {x, x};
  return __builtin_ia32_sqrtpd(all)[0];
}

/* A vector of the type of `a`, made by function##s of 4 floats or function##d of
 * 2 doubles, or of halves by an expression: double holds all bits that decide
 * the rounding to half. */
#define SWAMP_SIMD_PART(function, name, n) \
  (swamp_a.swamp_##name[n] = \
       function##name(swamp_a.swamp_##name[n], swamp_b.swamp_##name[n], swamp_c.swamp_##name[n]))
#define SWAMP_SIMD_ALL_PARTS(function, name) \
  ({ \
    SWAMP_SIMD_PART(function, name, 0); \
    if (sizeof(swamp_a.swamp_whole) > 16) SWAMP_SIMD_PART(function, name, 1); \
    if (sizeof(swamp_a.swamp_whole) > 32) { \
      SWAMP_SIMD_PART(function, name, 2); \
      SWAMP_SIMD_PART(function, name, 3); \
    } \
  })
#define SWAMP_SIMD_PARTS(a, b, c, function, half) \
  ({ \
    SWAMP_AUTO swamp_first = (a); \
    union { \
      __typeof__(swamp_first) swamp_whole; \
      swamp_simd_float4 swamp_s[4]; \
      swamp_simd_double2 swamp_d[4]; \
    } swamp_a, swamp_b, swamp_c; \
    swamp_a.swamp_whole = swamp_first; \
    swamp_b.swamp_whole = (b); \
    swamp_c.swamp_whole = (c); \
    if (sizeof(swamp_a.swamp_whole[0]) == 2) { \
      swamp_a.swamp_whole = \
          SWAMP_SIMD_MAP(swamp_a.swamp_whole, swamp_b.swamp_whole, swamp_c.swamp_whole, half); \
    } else if (sizeof(swamp_a.swamp_whole[0]) == 4) { \
      SWAMP_SIMD_ALL_PARTS(function, s); \
    } else { \
      SWAMP_SIMD_ALL_PARTS(function, d); \
    } \
    swamp_a.swamp_whole; \
  })

/* Rounded once: a*b+c, a*b-c, -a*b+c, -a*b-c. */
#define SWAMP_SIMD_FMA(a, b, c, sx, sz) \
  SWAMP_SIMD_PARTS(sx(a), b, sz(c), swamp_simd_fma, \
                   (double)swamp_x[swamp_i] * swamp_y[swamp_i] + swamp_z[swamp_i])

#define SWAMP_SIMD_MAX(a, b) \
  SWAMP_SIMD_MAP(a, b, 0, swamp_x[swamp_i] < swamp_y[swamp_i] ? swamp_y[swamp_i] : swamp_x[swamp_i])
#define SWAMP_SIMD_MIN(a, b) \
  SWAMP_SIMD_MAP(a, b, 0, swamp_y[swamp_i] < swamp_x[swamp_i] ? swamp_y[swamp_i] : swamp_x[swamp_i])
#define SWAMP_SIMD_SQRT(a)                       \
  ({                                             \
    SWAMP_AUTO swamp_v = (a);                    \
    SWAMP_SIMD_PARTS(swamp_v, swamp_v, swamp_v, swamp_simd_sqrt, \
                     swamp_simd_sqrt(swamp_x[swamp_i])); \
  })
#define SWAMP_SIMD_RECIPROCAL(a) SWAMP_SIMD_MAP(a, 0, 0, 1.0 / swamp_x[swamp_i])
#define SWAMP_SIMD_RSQRT(a) \
  SWAMP_SIMD_MAP(a, 0, 0, 1.0 / swamp_simd_sqrt(swamp_x[swamp_i]))
#define SWAMP_SIMD_ABS(a) SWAMP_SIMD_MAP(a, 0, 0, __builtin_fabs(swamp_x[swamp_i]))
/* The sign of a with the other bits of b. */
#define SWAMP_SIMD_COPYSIGN(a, b, sign) \
  SWAMP_SIMD_MAP(b, a, 0, __builtin_copysign(swamp_x[swamp_i], sign swamp_y[swamp_i]))
#define SWAMP_SIMD_SUM(type, a) SWAMP_SIMD_FOLD(type, a, swamp_r + swamp_x[swamp_i])
#define SWAMP_SIMD_GREATEST(type, a) \
  SWAMP_SIMD_FOLD(type, a, swamp_r < swamp_x[swamp_i] ? swamp_x[swamp_i] : swamp_r)
#define SWAMP_SIMD_LEAST(type, a) \
  SWAMP_SIMD_FOLD(type, a, swamp_x[swamp_i] < swamp_r ? swamp_x[swamp_i] : swamp_r)
#define simd_reduc_plusd(a) SWAMP_SIMD_SUM(double, a)
#define simd_reduc_smaxd(a) SWAMP_SIMD_GREATEST(double, a)
#define simd_reduc_smind(a) SWAMP_SIMD_LEAST(double, a)
#define simd_reduc_pluss(a) ((float)SWAMP_SIMD_SUM(double, a))
#define simd_reduc_smaxs(a) SWAMP_SIMD_GREATEST(float, a)
#define simd_reduc_smins(a) SWAMP_SIMD_LEAST(float, a)
#define simd_reduc_plush(a) ((_Float16)SWAMP_SIMD_SUM(double, a))
#define simd_reduc_smaxh(a) SWAMP_SIMD_GREATEST(_Float16, a)
#define simd_reduc_sminh(a) SWAMP_SIMD_LEAST(_Float16, a)
#define simd_reduc_plusw(a) SWAMP_SIMD_SUM(int, a)
#define simd_reduc_smaxw(a) SWAMP_SIMD_GREATEST(int, a)
#define simd_reduc_sminw(a) SWAMP_SIMD_LEAST(int, a)
#define simd_reduc_umaxw(a) SWAMP_SIMD_GREATEST(unsigned, a)
#define simd_reduc_uminw(a) SWAMP_SIMD_LEAST(unsigned, a)

/* True is 2.0 in floating point and -1 in integers. */
#define SWAMP_SIMD_TEST(a, b, op) \
  SWAMP_SIMD_MAP(a, b, 0, swamp_x[swamp_i] op swamp_y[swamp_i] ? 2 : 0)
#define SWAMP_SIMD_UNORDERED(a, b) \
  SWAMP_SIMD_MAP(a, b, 0, __builtin_isunordered(swamp_x[swamp_i], swamp_y[swamp_i]) ? 2 : 0)
#define SWAMP_SIMD_TEST_INTEGER(a, b, op) ((__typeof__(a))((a) op (b)))
/* Lane i is that of a if lane i of `test` is (equal to zero), else that of
 * b. */
#define SWAMP_SIMD_SELECT(test, a, b, op) \
  SWAMP_SIMD_MAP(test, a, b, swamp_x[swamp_i] op 0 ? swamp_y[swamp_i] : swamp_z[swamp_i])

/* The same for a number n in place of the last vector, and any condition. */
#define SWAMP_SIMD_SELECT_NUMBER(test, a, n, condition) \
  SWAMP_SIMD_MAP(test, a, n, (condition) ? swamp_y[swamp_i] : swamp_z)

/* Lanes of `type` in vectors of any type: each becomes `expression` of swamp_x,
 * of a, and swamp_y, of b. */
#define SWAMP_SIMD_MAP_AS(type, a, b, expression)                    \
  ({                                                                 \
    SWAMP_AUTO swamp_first = (a);                                    \
    union {                                                          \
      __typeof__(swamp_first) swamp_whole;                           \
      type swamp_lanes[sizeof(swamp_first) / sizeof(type)];          \
    } swamp_a, swamp_b;                                              \
    unsigned swamp_k;                                                \
    swamp_a.swamp_whole = swamp_first;                               \
    swamp_b.swamp_whole = (__typeof__(swamp_first))(b);              \
    for (swamp_k = 0; swamp_k < sizeof(swamp_first) / sizeof(type); ++swamp_k) { \
      const type swamp_x = swamp_a.swamp_lanes[swamp_k];             \
      const type swamp_y = swamp_b.swamp_lanes[swamp_k];             \
      (void)swamp_y;                                                 \
      swamp_a.swamp_lanes[swamp_k] = (type)(expression);             \
    }                                                                \
    swamp_a.swamp_whole;                                             \
  })
/* Sign and exponent of a, mantissa of b. */
#define SWAMP_SIMD_COPY_EXPONENT(type, a, b, bits)                   \
  SWAMP_SIMD_MAP_AS(type, a, b,                                      \
                    (swamp_x & (type)(~0ul << (bits))) |             \
                        (swamp_y & (type)~(~0ul << (bits))))

/* Lanes of `type` shifted by a number, or each by the lane of a vector: n modulo
 * the bits of a lane, which its lowest byte has. */
#define SWAMP_SIMD_SHIFT(type, a, n, expression)                     \
  ({                                                                 \
    SWAMP_AUTO swamp_count = (n);                                    \
    SWAMP_SIMD_MAP_AS(type, a, swamp_first, ({                                 \
      const int swamp_n =                                            \
          ((const unsigned char*)&swamp_count)                       \
              [sizeof(swamp_count) > 8 ? swamp_k * sizeof(type) : 0] & \
          (int)(8 * sizeof(type) - 1);                               \
      expression;                                                    \
    }));                                                             \
  })

/* All bits of a vector as one number, shifted by n bits: left (kind 0), right
 * (1), or right with copies of the sign (2). */
SWAMP_SIMD_INLINE void swamp_simd_shift_whole(unsigned long* words, int count,
                                              int n, int kind) {
  unsigned long from[8];
  const unsigned long fill =
      kind == 2 && words[count - 1] >> 63 != 0 ? ~0ul : 0;
  const int steps = (n & (64 * count - 1)) / 64, bits = n & 63;
  int i;
  for (i = 0; i < count; ++i) from[i] = words[i];
  for (i = 0; i < count; ++i) {
    if (kind == 0) {
      const int at = i - steps;
      words[i] = (at >= 0 ? from[at] << bits : 0) |
                 (bits != 0 && at >= 1 ? from[at - 1] >> (64 - bits) : 0);
    } else {
      const int at = i + steps;
      const unsigned long low = at < count ? from[at] : fill;
      const unsigned long high = at + 1 < count ? from[at + 1] : fill;
      words[i] = low >> bits | (bits != 0 ? high << (64 - bits) : 0);
    }
  }
}
#define SWAMP_SIMD_WHOLE(a, statement)                               \
  ({                                                                 \
    SWAMP_AUTO swamp_first = (a);                                    \
    union {                                                          \
      __typeof__(swamp_first) swamp_whole;                           \
      unsigned long swamp_words[sizeof(swamp_first) / 8];            \
    } swamp_a;                                                       \
    const int swamp_count = (int)sizeof(swamp_first) / 8;            \
    swamp_a.swamp_whole = swamp_first;                               \
    statement;                                                       \
  })
#define SWAMP_SIMD_SHIFT_WHOLE(a, n, kind)                           \
  SWAMP_SIMD_WHOLE(a, (swamp_simd_shift_whole(swamp_a.swamp_words,   \
                                              swamp_count, (int)(n), kind), \
                       swamp_a.swamp_whole))

/* The number of bits that are 1, and of leading zeros, of a whole vector. */
SWAMP_SIMD_INLINE int swamp_simd_ones(const unsigned long* words, int count) {
  int ones = 0, i;
  for (i = 0; i < count; ++i) ones += __builtin_popcountl(words[i]);
  return ones;
}
SWAMP_SIMD_INLINE int swamp_simd_zeros(const unsigned long* words, int count) {
  int i = count;
  while (i > 0 && words[i - 1] == 0) --i;
  return 64 * (count - i) + (i > 0 ? __builtin_clzl(words[i - 1]) : 0);
}
#define simd_ctpopow(a) SWAMP_SIMD_WHOLE(a, swamp_simd_ones(swamp_a.swamp_words, swamp_count))
#define simd_ctpopoww simd_ctpopow
#define simd_ctlzow(a) SWAMP_SIMD_WHOLE(a, swamp_simd_zeros(swamp_a.swamp_words, swamp_count))
#define simd_vsumw(a) SWAMP_SIMD_SUM(int, a)
#define simd_vsuml(a) SWAMP_SIMD_SUM(long, a)

/* Lane i is lane i - n of a, or 0. */
#define SWAMP_SIMD_MOVE(a, n)                                              \
  SWAMP_SIMD_MAP(a, swamp_x, 0,                                            \
                 swamp_i - (n) >= 0 && swamp_i - (n) < SWAMP_LANES(swamp_y) \
                     ? swamp_y[swamp_i - (n)]                              \
                     : 0)

#endif /* SWAMP_SUNWAY_SIMD_LANES_H_ */
