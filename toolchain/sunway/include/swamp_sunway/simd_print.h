/* simd_print.h: vectors as text, the highest lane first. */
#ifndef SWAMP_SUNWAY_SIMD_PRINT_H_
#define SWAMP_SUNWAY_SIMD_PRINT_H_

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

#endif /* SWAMP_SUNWAY_SIMD_PRINT_H_ */
