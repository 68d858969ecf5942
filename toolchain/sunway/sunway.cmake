# A CMake toolchain file for programs of the emulated Sunway machine:
#   cmake -DCMAKE_TOOLCHAIN_FILE=.../swamp/sunway/sunway.cmake
# Mark slave sources with:
#   set_source_files_properties(kernel.c PROPERTIES COMPILE_OPTIONS -mslave)
get_filename_component(SWAMP_SUNWAY_LIBRARY "${CMAKE_CURRENT_LIST_DIR}" PATH)
find_program(SWAMP_SWCC swcc REQUIRED NO_CMAKE_FIND_ROOT_PATH
  HINTS "${SWAMP_SUNWAY_LIBRARY}/../../bin" "${SWAMP_SUNWAY_LIBRARY}/../bin"
    "${SWAMP_SUNWAY_LIBRARY}/../../../bin")
get_filename_component(SWAMP_SUNWAY_BIN "${SWAMP_SWCC}" DIRECTORY)
set(CMAKE_C_COMPILER "${SWAMP_SWCC}")
set(CMAKE_CXX_COMPILER "${SWAMP_SUNWAY_BIN}/swg++")
