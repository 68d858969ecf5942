# Writes swamp_sunway/simd_names.h: the functions of simd.h that exist once for each
# type of elements, which their names tell apart (C has no templates). A row is what a
# function does, and its names.
set(rows
  "(a, b) ((a) + (b))" "vaddd vadds vaddh vaddw vaddl vaddwi vaddli"
  "(a, b) ((a) - (b))" "vsubd vsubs vsubh vsubw vsubl vsubwi vsubli"
  "(a, b) ((a) * (b))" "vmuld vmuls vmulh vmulw"
  "(a, b) ((a) / (b))" "vdivd vdivs vdivh vdivw"
  "(a, b) ((a) & (b))" "vandw vandl"
  "(a, b) ((a) & ~(b))" "vbicw vbicl"
  "(a, b) ((a) | (b))" "vbisw vbisl"
  "(a, b) ((a) | ~(b))" "vornotw vornotl"
  "(a, b) ((a) ^ (b))" "vxorw vxorl"
  "(a, b) (~((a) ^ (b)))" "veqvw veqvl"
  "(a) (~(a))" "vnotw vnotl"
  "(a, b, c) SWAMP_SIMD_FMA(a, b, c, +, +)" "vmad vmas vmah"
  "(a, b, c) SWAMP_SIMD_FMA(a, b, c, +, -)" "vmsd vmss vmsh"
  "(a, b, c) SWAMP_SIMD_FMA(a, b, c, -, +)" "vnmad vnmas vnmah"
  "(a, b, c) SWAMP_SIMD_FMA(a, b, c, -, -)" "vnmsd vnmss vnmsh"
  "(a, b) SWAMP_SIMD_MAX(a, b)" "smaxd smaxs smaxh smaxw umaxw"
  "(a, b) SWAMP_SIMD_MIN(a, b)" "smind smins sminh sminw uminw"
  "(a) SWAMP_SIMD_SQRT(a)" "vsqrtd vsqrts vsqrth"
  "(a, b) SWAMP_SIMD_COPYSIGN(a, b, +)" "vcpysd vcpyss vcpysh"
  "(a, b) SWAMP_SIMD_COPYSIGN(a, b, -)" "vcpysnd vcpysns vcpysnh"
  "(a) SWAMP_SIMD_RECIPROCAL(a)" "vfrecd vfrecpd vfrecs vfrecps"
  "(a) SWAMP_SIMD_RSQRT(a)" "vrsqrtd vrsqrts vfsqrtrecd vnprsqrtd"
  "(a) SWAMP_SIMD_ABS(a)" "vabsd vabss"
  "(a, b) SWAMP_SIMD_TEST(a, b, ==)" "vfcmpeq vfcmpeqd vfcmpeqs vfcmpeqh"
  "(a, b) SWAMP_SIMD_TEST(a, b, <=)" "vfcmple vfcmpled vfcmples vfcmpleh"
  "(a, b) SWAMP_SIMD_TEST(a, b, <)" "vfcmplt vfcmpltd vfcmplts vfcmplth"
  "(a, b) SWAMP_SIMD_UNORDERED(a, b)" "vfcmpun vfcmpund vfcmpuns vfcmpunh"
  "(a, b) SWAMP_SIMD_TEST_INTEGER(a, b, ==)" "vcmpeqw vcmpeqwi"
  "(a, b) SWAMP_SIMD_TEST_INTEGER(a, b, <=)"
    "vcmplew vcmplewi vcmpulew vcmpulewi"
  "(a, b) SWAMP_SIMD_TEST_INTEGER(a, b, <)"
    "vcmpltw vcmpltwi vcmpultw vcmpultwi"
  "(t, a, b) SWAMP_SIMD_SELECT(t, a, b, ==)"
    "vseleq vseleqw vseleqd vseleqs vseleqh vfseleqd vfseleqs"
  "(t, a, b) SWAMP_SIMD_SELECT(t, a, b, !=)"
    "vselne vselnew vselned vselnes vselneh vfselned vfselnes"
  "(t, a, b) SWAMP_SIMD_SELECT(t, a, b, <)"
    "vsellt vselltw vselltd vsellts vsellth vfselltd vfsellts"
  "(t, a, b) SWAMP_SIMD_SELECT(t, a, b, <=)"
    "vselle vsellew vselled vselles vselleh vfselled vfselles"
  "(t, a, b) SWAMP_SIMD_SELECT(t, a, b, >)"
    "vselgt vselgtw vselgtd vselgts vselgth vfselgtd vfselgts"
  "(t, a, b) SWAMP_SIMD_SELECT(t, a, b, >=)"
    "vselge vselgew vselged vselges vselgeh vfselged vfselges"
  "(e, v, n) SWAMP_SIMD_INSERT(e, v, n)" "vinsf vinsfs vinsfd vinsw vinsl vinsh"
  "(v, n) SWAMP_SIMD_EXTRACT(v, n)" "vextf vextfs vextfd vextw vextl vexth"
  "(a, b, mask) SWAMP_SIMD_SHUFFLE(a, b, mask, 5, 2)" "vshfs vshfd")
set(text "/* simd_names.h: made by CMake of simd_names.cmake. */\n")
while(rows)
  list(POP_FRONT rows what names)
  separate_arguments(names)
  foreach(name IN LISTS names)
    string(APPEND text "#define simd_${name}${what}\n")
  endforeach()
endwhile()
# Insert and extract with the lane as a part of the name: type, lanes.
foreach(row IN ITEMS "f 4" "fs 8" "fd 8" "w 16" "l 8")
  separate_arguments(row)
  list(POP_FRONT row type lanes)
  math(EXPR last "${lanes} - 1")
  foreach(lane RANGE ${last})
    string(APPEND text
      "#define simd_vins${type}${lane}(e, v) SWAMP_SIMD_INSERT(e, v, ${lane})\n"
      "#define simd_vext${type}${lane}(v) SWAMP_SIMD_EXTRACT(v, ${lane})\n")
  endforeach()
endforeach()
# Vectors made of their elements: vector, lanes, type of an element.
foreach(row IN ITEMS "doublev8 8 double" "floatv8 8 float" "doublev4 4 double"
    "floatv4 4 float" "intv8 8 int" "uintv8 8 unsigned" "intv16 16 int"
    "uintv16 16 unsigned" "int256 4 long" "uint256 4 unsigned long"
    "int512 8 long" "uint512 8 unsigned long" "float16v32 32 _Float16")
  string(REGEX MATCH "^([^ ]+) ([^ ]+) (.*)$" row "${row}")
  set(vector ${CMAKE_MATCH_1})
  set(type ${CMAKE_MATCH_3})
  set(parameters "${type} x0")
  set(values "x0")
  math(EXPR last "${CMAKE_MATCH_2} - 1")
  foreach(lane RANGE 1 ${last})
    string(APPEND parameters ", ${type} x${lane}")
    string(APPEND values ", x${lane}")
  endforeach()
  string(APPEND text "SWAMP_SIMD ${vector} simd_set_${vector}(${parameters}) {\n"
    "  ${vector} v = {${values}};\n  return v;\n}\n")
endforeach()
file(CONFIGURE OUTPUT ${SWCC_INCLUDE}/swamp_sunway/simd_names.h
  CONTENT "${text}" @ONLY)
