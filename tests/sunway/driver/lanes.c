#include <simd.h>
void work(floatv8* s, doublev8* d) {
  s[0] = simd_vsqrts(simd_vmas(s[0], s[1], s[2])) + simd_vrsqrts(s[3]);
  d[0] = simd_vsqrtd(simd_vnmsd(d[0], d[1], d[2])) + simd_vrsqrtd(d[3]);
}
