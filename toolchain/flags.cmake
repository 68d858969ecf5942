# Every target of swamp links swamp_flags privately.
add_library(swamp_flags INTERFACE)
target_compile_features(swamp_flags INTERFACE cxx_std_17 c_std_99)
# The same bits on every ISA: by default g++ fuses multiply-add if it can.
target_compile_options(swamp_flags INTERFACE -ffp-contract=off)
# A project that adds this folder may have no build type, and so no -O.
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES AND
   NOT CMAKE_CXX_FLAGS MATCHES "(^| )-O")
  message(STATUS "swamp: no CMAKE_BUILD_TYPE given; swamp is compiled with -O3")
  target_compile_options(swamp_flags INTERFACE -O3 -DNDEBUG)
endif()
# CI makes errors of warnings with CMAKE_COMPILE_WARNING_AS_ERROR.
if(SWAMP_DEVELOPER)
  target_compile_options(swamp_flags INTERFACE
    -Wall -Wextra -Wpedantic -Wconversion -Wshadow)
endif()

# Highway's targets, for all files: translation units with different ones would
# violate the one-definition rule. CPUs without SSE4 run the scalar kernels.
# AVX3_DL is not one of swamp's targets: with -march=native on a CPU that has it, it
# would be Highway's baseline, and Highway's own headers would not compile. Nor are
# vectors of a length that only the CPU knows (SVE, RVV): the kernels keep vectors
# in structs and arrays. 32-bit Arm's NEON always flushes subnormals.
set(disabled HWY_SSSE3 HWY_AVX3_DL HWY_SVE HWY_SVE2 HWY_SVE_256 HWY_SVE2_128
  HWY_RVV ${SWAMP_DISABLED_TARGETS})
if(SWAMP_PORTABLE)
  list(APPEND disabled HWY_AVX2 HWY_AVX3)
endif()
if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
  list(APPEND disabled HWY_NEON)
endif()
if(NOT SWAMP_WITH_ATHREAD)
  list(JOIN disabled "|" disabled)
  add_compile_definitions("HWY_DISABLED_TARGETS=(${disabled})")
  if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "86|AMD64|amd64")
    # Also `scalar`. Highway's default is what the baseline does not include.
    add_compile_definitions(HWY_COMPILE_ALL_ATTAINABLE)
  endif()
endif()

# Highway has no target for the vectors of Sunway's cores. An option tells the
# vendor's compiler whether a file is for the master (-mhost) or for the slaves.
if(SWAMP_WITH_ATHREAD)
  add_compile_definitions(HWY_COMPILE_ONLY_SCALAR)
  target_compile_options(swamp_flags INTERFACE
    "$<IF:$<BOOL:$<TARGET_PROPERTY:SWAMP_SLAVE>>,-mslave;-msimd,-mhost>")
  add_link_options(-mhybrid)
endif()

set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)

# swamp_component(NAME SOURCES...) makes the object library of one component.
function(swamp_component name)
  add_library(${name} OBJECT ${ARGN})
  target_include_directories(${name} PUBLIC
    ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(${name} PRIVATE swamp_flags)
endfunction()

# swamp_unity(TARGET SOURCES...) compiles some sources of TARGET as one, which takes
# half the time. Their unnamed namespaces may not define the same name.
function(swamp_unity target)
  list(GET ARGN 0 group)
  cmake_path(GET group STEM group)
  set_source_files_properties(${ARGN} PROPERTIES UNITY_GROUP ${group})
  set_target_properties(${target} PROPERTIES
    UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
endfunction()

# swamp_slave_component(NAME SOURCES...) makes one of code for Sunway's slave cores.
# They have no C++ library, so code that needs one must not compile.
function(swamp_slave_component name)
  swamp_component(${name} ${ARGN})
  set_target_properties(${name} PROPERTIES SWAMP_SLAVE ON)
  target_compile_options(${name} PRIVATE
    -fno-exceptions -fno-rtti -fno-threadsafe-statics)
endfunction()
