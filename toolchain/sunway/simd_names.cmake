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
  "(t, a, n) SWAMP_SIMD_SELECT_NUMBER(t, a, n, swamp_x[swamp_i] == 0)"
    "vseleqwi"
  "(t, a, n) SWAMP_SIMD_SELECT_NUMBER(t, a, n, swamp_x[swamp_i] < 0)"
    "vselltwi"
  "(t, a, n) SWAMP_SIMD_SELECT_NUMBER(t, a, n, swamp_x[swamp_i] <= 0)"
    "vsellewi"
  "(t, a, n) SWAMP_SIMD_SELECT_NUMBER(t, a, n, (swamp_x[swamp_i] & 1) == 0)"
    "vsellbcwi"
  "(t, a, b) SWAMP_SIMD_MAP(t, a, b, (swamp_x[swamp_i] & 1) == 0 ? swamp_y[swamp_i] : swamp_z[swamp_i])"
    "vsellbcw"
  "(a, b) SWAMP_SIMD_MAP_AS(long, a, b, swamp_x | swamp_y)" "vbisd vbiss"
  "(a, b) SWAMP_SIMD_COPY_EXPONENT(long, a, b, 52)" "vcpysed"
  "(a, b) SWAMP_SIMD_COPY_EXPONENT(int, a, b, 23)" "vcpyses"
  "(a, b) SWAMP_SIMD_COPY_EXPONENT(short, a, b, 10)" "vcpyseh"
  "(a) SWAMP_SIMD_MAP_AS(unsigned, a, swamp_first, __builtin_bswap32(swamp_x))" "vbinvw"
  "(a, n) SWAMP_SIMD_SHIFT_WHOLE(a, n, 0)" "sllow sllowi sllx"
  "(a, n) SWAMP_SIMD_SHIFT_WHOLE(a, n, 1)" "srlow srlowi srlx"
  "(a, n) SWAMP_SIMD_SHIFT_WHOLE(a, n, 2)" "sraow sraowi"
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
# Lanes of another width than the vector's: the last letter of the name, types.
foreach(row IN ITEMS "b char" "h short" "w int" "l long")
  separate_arguments(row)
  list(GET row 0 letter)
  list(GET row 1 type)
  foreach(sign IN ITEMS "" u)
    set(element "signed ${type}")
    if(sign STREQUAL u)
      set(element "unsigned ${type}")
    endif()
    foreach(what IN ITEMS "max >" "min <")
      separate_arguments(what)
      list(GET what 0 name)
      list(GET what 1 operator)
      string(APPEND text
        "#define simd_v${sign}${name}${letter}(a, b) SWAMP_SIMD_MAP_AS(${element}, a, b, "
        "swamp_x ${operator} swamp_y ? swamp_x : swamp_y)\n")
    endforeach()
  endforeach()
  foreach(number IN ITEMS "" i)
    string(APPEND text
      "#define simd_vsll${letter}${number}(a, n) "
      "SWAMP_SIMD_SHIFT(unsigned ${type}, a, n, swamp_x << swamp_n)\n"
      "#define simd_vsrl${letter}${number}(a, n) "
      "SWAMP_SIMD_SHIFT(unsigned ${type}, a, n, swamp_x >> swamp_n)\n"
      "#define simd_vsra${letter}${number}(a, n) "
      "SWAMP_SIMD_SHIFT(signed ${type}, a, n, swamp_x >> swamp_n)\n"
      "#define simd_vrol${letter}${number}(a, n) SWAMP_SIMD_SHIFT(unsigned ${type}, a, n, "
      "swamp_x << swamp_n | swamp_x >> (-swamp_n & (int)(8 * sizeof(swamp_x) - 1)))\n")
  endforeach()
endforeach()
string(APPEND text "#define simd_vrol simd_vrolw\n#define simd_vroli simd_vrolwi\n")
# Floats moved to lanes of a higher (l) or lower (r) number.
foreach(type IN ITEMS s d)
  foreach(lanes RANGE 1 3)
    string(APPEND text
      "#define simd_vsll${type}${lanes}(a) SWAMP_SIMD_MOVE(a, ${lanes})\n"
      "#define simd_vsrl${type}${lanes}(a) SWAMP_SIMD_MOVE(a, -${lanes})\n")
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
