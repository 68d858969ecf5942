# Every target of swamp links swamp_flags privately.
add_library(swamp_flags INTERFACE)
target_compile_features(swamp_flags INTERFACE cxx_std_17 c_std_99)
# The same bits on every ISA: by default g++ fuses multiply-add if it can.
target_compile_options(swamp_flags INTERFACE -ffp-contract=off)
# CI makes errors of warnings with CMAKE_COMPILE_WARNING_AS_ERROR.
if(SWAMP_DEVELOPER)
  target_compile_options(swamp_flags INTERFACE
    -Wall -Wextra -Wpedantic -Wconversion -Wshadow)
endif()

# For all targets: translation units with different targets of Highway would
# violate the one-definition rule.
if(SWAMP_PORTABLE)
  add_compile_definitions(
    "HWY_DISABLED_TARGETS=(HWY_AVX2|HWY_AVX3|HWY_AVX3_DL)")
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

# swamp_slave_component(NAME SOURCES...) makes one of code for Sunway's slave cores.
# They have no C++ library, so code that needs one must not compile.
function(swamp_slave_component name)
  swamp_component(${name} ${ARGN})
  set_target_properties(${name} PROPERTIES SWAMP_SLAVE ON)
  target_compile_options(${name} PRIVATE
    -fno-exceptions -fno-rtti -fno-threadsafe-statics)
endfunction()
