/* simd_types.h: short vectors, as vector types of GCC. Sunway's compilers know
 * them without a header; swcc includes this one if a program needs it. */
#ifndef SWAMP_SUNWAY_SIMD_TYPES_H_
#define SWAMP_SUNWAY_SIMD_TYPES_H_

#define SWAMP_SUNWAY_VECTOR(bytes) \
  __attribute__((__vector_size__(bytes), __may_alias__))
typedef int intv16 SWAMP_SUNWAY_VECTOR(64);
typedef unsigned uintv16 SWAMP_SUNWAY_VECTOR(64);
typedef long int512 SWAMP_SUNWAY_VECTOR(64);
typedef unsigned long uint512 SWAMP_SUNWAY_VECTOR(64);
typedef float floatv8 SWAMP_SUNWAY_VECTOR(32);
typedef double doublev8 SWAMP_SUNWAY_VECTOR(64);
typedef int intv8 SWAMP_SUNWAY_VECTOR(32);
typedef unsigned uintv8 SWAMP_SUNWAY_VECTOR(32);
typedef long int256 SWAMP_SUNWAY_VECTOR(32);
typedef unsigned long uint256 SWAMP_SUNWAY_VECTOR(32);
typedef float floatv4 SWAMP_SUNWAY_VECTOR(16);
typedef double doublev4 SWAMP_SUNWAY_VECTOR(32);
typedef float swamp_simd_float4 SWAMP_SUNWAY_VECTOR(16); /* of the CPU */
typedef double swamp_simd_double2 SWAMP_SUNWAY_VECTOR(16);
typedef _Float16 float16;
typedef _Float16 float16v32 SWAMP_SUNWAY_VECTOR(64);

#endif /* SWAMP_SUNWAY_SIMD_TYPES_H_ */
