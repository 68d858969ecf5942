#include <simd.h>
#include <math.h>
#include <slave.h>
#include <stdio.h>

typedef floatv8 row;
typedef struct {
  row sum;
  int count;
} state;

static __thread_local row ones = 1.0; /* a number becomes a vector */
static __thread_local float ldm[64] __attribute__((aligned(64)));
static __thread_local float16 half[32] __attribute__((aligned(64)));

/* Packs fields of `bits` bits each into a mask. */
static intv16 mask_of(const int* fields, int count, int bits) {
  union {
    unsigned words[16];
    intv16 vector;
  } mask = {{0}};
  for (int i = 0; i < count * bits; ++i) {
    const unsigned bit = (unsigned)fields[i / bits] >> (i % bits) & 1u;
    mask.words[i / 32] |= bit << (i % 32);
  }
  return mask.vector;
}

static row scaled(row v, double by) {
  state s;
  s.count = 1;
  s.sum = by;          /* a member of a struct */
  row all[2], *p = all;
  all[0] = v * s.sum;  /* an element of an array */
  p[1] = 1;
  (p + 1)[0] = 0.5f;
  return all[0] + p[1] * ones;
}

static void halves(void) {
  row f[4];
  float16v32 h = simd_vcpyh(0);
  int order[32];
  for (int i = 0; i < 4; ++i) {
    simd_load(f[i], ldm + 8 * i);
    h += simd_vfcvtsh(f[i], i);
  }
  /* Lane 4 i + part is element i of f[part]: sort them. */
  for (int i = 0; i < 32; ++i) order[i] = 4 * (i % 8) + i / 8;
  h = simd_vshfh(h, h, mask_of(order, 32, 6));
  simd_store(h, half);
  printf("halves %g %g %g, sum %g\n", (double)half[1], (double)half[9],
         (double)half[31], (double)simd_reduc_plush(h));
  f[0] = simd_vfcvths(h, 3);
  printf("part 3 of them %g %g\n", simd_vextfs0(f[0]), simd_vextfs7(f[0]));
}

/* wrong() counts lanes with other bits; any nan equals any nan. */
#define WRONG(type, lanes, got, expected)                        \
  for (int lane = 0; lane < (lanes); ++lane) {                   \
    const type one = (got)[lane], two = (type)(expected);        \
    wrong += (one != two || signbit(one) != signbit(two)) &&     \
             !(one != one && two != two);                        \
  }

/* Every product of these and sum with these is rounded once. */
static void fused(void) {
  static const double kValues[] = {
      0, -0.0, -1, 3, 1 + 0x1p-12, 1 - 0x1p-24, 1 + 0x1p-27, 0x1p-40,
      0x1p-130, -0x1p-149, 0x1p120, -0x1p1000, 65504, -0x1p-14, INFINITY, NAN};
  enum { kCount = sizeof kValues / sizeof kValues[0] };
  int wrong = 0;
  for (int i = 0; i < kCount * kCount * kCount; ++i) {
    const double x = kValues[i % kCount], y = kValues[i / kCount % kCount],
                 z = kValues[i / kCount / kCount];
    const float u = (float)x, v = (float)y, w = (float)z;
    const float16 r = (float16)x, s = (float16)y, t = (float16)z;
    const doublev8 a = simd_vcpyfd(x), b = simd_vcpyfd(y), c = simd_vcpyfd(z);
    const floatv8 d = simd_vcpyfs(u), e = simd_vcpyfs(v), f = simd_vcpyfs(w);
    const float16v32 g = simd_vcpyh(r), h = simd_vcpyh(s), k = simd_vcpyh(t);
    WRONG(double, 8, simd_vmad(a, b, c), fma(x, y, z));
    WRONG(double, 8, simd_vnmsd(a, b, c), fma(-x, y, -z));
    WRONG(float, 8, simd_vmas(d, e, f), fmaf(u, v, w));
    WRONG(float, 8, simd_vmss(d, e, f), fmaf(u, v, -w));
    WRONG(float16, 32, simd_vnmah(g, h, k), fma(-(double)r, s, t));
    const swamp_simd_float4 d4 = {u, u, u, u}, e4 = {v, v, v, v},
                            f4 = {w, w, w, w};
    const swamp_simd_double2 a2 = {x, x}, b2 = {y, y}, c2 = {z, z};
    WRONG(float, 4, swamp_simd_software_fmas(d4, e4, f4), fmaf(u, v, w));
    WRONG(double, 2, swamp_simd_software_fmad(a2, b2, c2), fma(x, y, z));
    if (i >= kCount) continue;
    WRONG(double, 8, simd_vsqrtd(a), sqrt(x));
    WRONG(float, 8, simd_vsqrts(d), sqrtf(u));
    WRONG(float16, 32, simd_vsqrth(g), sqrt(r));
    WRONG(float, 8, simd_vrsqrts(d), 1 / sqrt(u));
  }
  printf("fused %d wrong\n", wrong);
}

static int512 int512_of(long x) { return simd_vcpyl(x); }

/* Functions for lanes of any width, and for a vector as one number. */
static void widths(void) {
  union {
    intv16 v;
    int512 l;
    unsigned char b[64];
    signed short h[32];
    unsigned w[16];
    unsigned long q[8];
  } a, b, r, n;
  int wrong = 0, i;
  for (i = 0; i < 64; ++i) {
    a.b[i] = (unsigned char)(i * 37 + 11);
    b.b[i] = (unsigned char)(i * 91 + 5);
    n.b[i] = (unsigned char)(i % 4 == 0 ? i : 0);
  }
  r.v = simd_vumaxb(a.v, b.v);
  for (i = 0; i < 64; ++i) wrong += r.b[i] != (a.b[i] > b.b[i] ? a.b[i] : b.b[i]);
  r.v = simd_vminh(a.v, b.v);
  for (i = 0; i < 32; ++i) wrong += r.h[i] != (a.h[i] < b.h[i] ? a.h[i] : b.h[i]);
  r.l = simd_vmaxl(a.l, b.l);
  for (i = 0; i < 8; ++i) {
    wrong += (long)r.q[i] != ((long)a.q[i] > (long)b.q[i] ? (long)a.q[i] : (long)b.q[i]);
  }
  r.v = simd_vsrlhi(a.v, 3);
  for (i = 0; i < 32; ++i) wrong += (unsigned short)r.h[i] != (unsigned short)a.h[i] >> 3;
  r.v = simd_vrolb(a.v, 3);
  for (i = 0; i < 64; ++i) wrong += r.b[i] != (unsigned char)(a.b[i] << 3 | a.b[i] >> 5);
  r.v = simd_vsllw(a.v, n.v);
  for (i = 0; i < 16; ++i) wrong += r.w[i] != a.w[i] << (n.w[i] & 31);
  r.l = simd_vsrali(a.l, 9);
  for (i = 0; i < 8; ++i) wrong += (long)r.q[i] != (long)a.q[i] >> 9;
  r.l = simd_sllx(a.l, 72);
  for (i = 0; i < 64; ++i) wrong += r.b[i] != (i < 9 ? 0 : a.b[i - 9]);
  r.l = simd_srlx(simd_sllx(a.l, 13), 13);
  r.q[7] ^= a.q[7] & ~(~0ul >> 13);
  for (i = 0; i < 8; ++i) wrong += r.q[i] != a.q[i];
  const int256 minus = {0, 0, 0, -1L << 60};
  wrong += simd_sraowi(minus, 200)[0] != -1L << 52;
  wrong += simd_ctpopow(minus) != 4 || simd_ctlzow(-minus) != 3;
  wrong += simd_vbinvw(a.v)[3] != (int)__builtin_bswap32(a.w[3]);
  wrong += simd_vsuml(int512_of(1)) != 8 || simd_vsumw(simd_vcpyw(3)) != 48;
  wrong += simd_vcpysed(simd_vcpyfd(-4), simd_vcpyfd(1.5))[5] != -6;
  wrong += simd_vcpyses(simd_vcpyfs(8), simd_vcpyfs(-1.25f))[7] != 10;
  const doublev4 four = {1, 2, 3, 4};
  wrong += simd_vslld1(four)[0] != 0 || simd_vslld1(four)[3] != 3;
  wrong += simd_vsrld3(four)[0] != 4 || simd_vsrld3(four)[1] != 0;
  wrong += simd_vselltwi(simd_vcpyw(-1), simd_vcpyw(6), 9)[2] != 6;
  wrong += simd_vsellbcw(simd_vcpyw(3), simd_vcpyw(6), simd_vcpyw(9))[2] != 9;
  printf("widths %d wrong\n", wrong);
  simd_print_int256_X(minus);
}

void vectors(float* in) {
  row a, b, c;
  doublev8 d, e;
  intv16 w;
  athread_dma_get(ldm, in, sizeof ldm);
  if (_PEN != 0) return;
  simd_load(a, ldm), simd_load(b, ldm + 8);
  /* In a mask, a float is two words of the register. */
  const int pairs[16] = {0, 1, 16, 17, 2, 3, 18, 19, 4, 5, 20, 21, 6, 7, 22, 23};
  c = simd_vshfs(a, b, mask_of(pairs, 16, 5));
  simd_print_floatv8(c);
  c = scaled(a, 2);
  printf("scaled %g %g\n", simd_vextfs(c, 0), simd_reduc_pluss(c));
  d = (doublev8)a; /* element by element */
  e = simd_vmad(d, d, d) - 3.0;
  e = simd_vinsfd3(-1.0, e);
  e = simd_vfselltd(e, simd_vcpyfd(0), simd_vsqrtd(e));
  printf("double %g %g %g\n", e[2], e[3], simd_reduc_smaxd(e));
  b = (floatv8)e;
  b = simd_vfseleqs(simd_vfcmplts(b, a), a, b);
  printf("less %g %g\n", b[1], b[7]);
  w = simd_vcpyw(5);
  w = simd_vsllwi(w, 2) + simd_vcmpltw(w, w + 1);
  printf("words %d %d\n", w[0], simd_reduc_plusw(w));
  doublev4 q = {1, 2, 3, 4};
  q = simd_vshff(q, q + 10, 0x44);
  printf("four %g %g %g %g\n", q[0], q[1], q[2], q[3]);
  halves();
  fused();
  widths();
}
