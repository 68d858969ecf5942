# `cmake --install` installs the library, its headers, its license, a CMake package
# and pkg-config files. None of them has the path of the installation, so the tree
# may be moved.
include(CMakePackageConfigHelpers)
block()

# The components of the CMake package. An adapter (aten, mpi) appends its name to
# this property and installs swamp_<name>.cmake next to swampConfig.cmake, which
# finds its dependencies and includes its targets.
get_property(SWAMP_COMPONENTS GLOBAL PROPERTY SWAMP_COMPONENTS)
list(PREPEND SWAMP_COMPONENTS swamp)

# The libraries that users of a static libswamp must link, for CMake and for
# pkg-config. A shared one is already linked to them.
set(link_names "")     # of -l
set(link_packages "")  # of pkg-config
get_target_property(type swamp TYPE)
if(type STREQUAL "STATIC_LIBRARY")
  set(SWAMP_IS_STATIC TRUE)
  set(link_packages libhwy)
  if(SWAMP_WITH_HWLOC)
    list(APPEND link_packages hwloc)
  endif()
  # By name (gomp), not as OpenMP::OpenMP_CXX: the user's compiler may be another
  # one, and a C project cannot find OpenMP for C++.
  if(SWAMP_WITH_OPENMP)
    set(link_names ${OpenMP_CXX_LIB_NAMES})
    list(REMOVE_ITEM link_names pthread)
  endif()
else()
  set(SWAMP_IS_STATIC FALSE)
endif()
foreach(name IN LISTS link_names)
  target_link_libraries(swamp PRIVATE $<INSTALL_INTERFACE:${name}>)
endforeach()
foreach(package IN LISTS link_packages)
  target_link_libraries(swamp PRIVATE
    $<INSTALL_INTERFACE:PkgConfig::swamp_${package}>)
endforeach()
if(SWAMP_IS_STATIC)
  target_link_libraries(swamp PRIVATE $<INSTALL_INTERFACE:Threads::Threads>)
endif()

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/swamp)
install(TARGETS swamp EXPORT swampTargets)
install(EXPORT swampTargets NAMESPACE swamp:: DESTINATION ${package_folder})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/swamp
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h"
  PATTERN aten.h EXCLUDE PATTERN mpi.h EXCLUDE)

set(SWAMP_LINK_PACKAGES ${link_packages})
# The C++ runtime is for users that link with a C compiler.
set(SWAMP_CXX_RUNTIME ${CMAKE_CXX_IMPLICIT_LINK_LIBRARIES})
list(FILTER SWAMP_CXX_RUNTIME INCLUDE REGEX "^(stdc\\+\\+|c\\+\\+|m)$")
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/swampConfig.cmake.in
  ${PROJECT_BINARY_DIR}/swampConfig.cmake INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/swampConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/swampConfig.cmake
  ${PROJECT_BINARY_DIR}/swampConfigVersion.cmake DESTINATION ${package_folder})

# pcfiledir is the folder of the file, so the prefix is right after a move.
set(pc_folder ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig)
file(RELATIVE_PATH SWAMP_PC_PREFIX ${pc_folder} ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" SWAMP_PC_PREFIX "${SWAMP_PC_PREFIX}")
cmake_path(APPEND SWAMP_PC_LIBDIR "\${prefix}" ${CMAKE_INSTALL_LIBDIR})
cmake_path(APPEND SWAMP_PC_INCLUDEDIR "\${prefix}" ${CMAKE_INSTALL_INCLUDEDIR})
set(libs_private "")  # PRIVATE and its value
if(SWAMP_IS_STATIC)
  # By name, not as Requires.private: `pkg-config --static` would also require the
  # dependencies of a static libhwloc, and Debian's libhwloc-dev lacks libudev.
  list(TRANSFORM link_packages REPLACE "^lib" "")
  list(APPEND link_names ${link_packages} ${SWAMP_CXX_RUNTIME})
  list(TRANSFORM link_names PREPEND "-l")
  list(JOIN link_names " " libs)
  set(libs_private PRIVATE "${libs} -pthread")
endif()

# One file for libswamp, and one for each component.
function(swamp_install_pc name description)
  cmake_parse_arguments(PARSE_ARGV 2 SWAMP_PC ""
    "VARIABLES;REQUIRES;LIBS;PRIVATE;CFLAGS" "")
  set(SWAMP_PC_NAME ${name})
  set(SWAMP_PC_DESCRIPTION ${description})
  configure_file(${PROJECT_SOURCE_DIR}/toolchain/swamp.pc.in
    ${PROJECT_BINARY_DIR}/${name}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${name}.pc
    DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endfunction()
swamp_install_pc(swamp "${PROJECT_DESCRIPTION}" ${libs_private})
if(mpi IN_LIST SWAMP_COMPONENTS)
  list(JOIN MPI_C_LIBRARIES " " libraries)
  swamp_install_pc(swamp_mpi "Ranks for swamp, over MPI" REQUIRES "swamp"
    PRIVATE "${libraries}")
endif()
if(aten IN_LIST SWAMP_COMPONENTS)
  # A wheel of PyTorch may be anywhere, and has no file of pkg-config.
  get_target_property(torch_version swamp_aten SWAMP_TORCH_VERSION)
  set(include "\${torch}/include")
  swamp_install_pc(swamp_aten
    "swamp's operators in PyTorch ${torch_version}, whose folder is `torch`"
    VARIABLES "torch=/usr\n" REQUIRES "swamp"
    LIBS " -L\${torch}/lib -ltorch_cpu -lc10"
    CFLAGS " -I${include} -I${include}/torch/csrc/api/include")
endif()
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE
  DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/doc/swamp)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/tests/examples
  DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/doc/swamp FILES_MATCHING
  PATTERN "*.c" PATTERN "*.cpp")

endblock()
