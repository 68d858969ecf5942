# The libraries that swamp uses. libswamp needs Highway, and nlohmann-json at build
# time; OpenMP and hwloc are optional; program, tests and bench find the rest.
#
# GLOBAL, because a static libswamp passes these targets to a project that adds
# this folder with add_subdirectory().
find_package(Threads REQUIRED GLOBAL)
find_package(PkgConfig REQUIRED)

# Debian's Highway has a CMake package, upstream's 1.0.3 has only a .pc file.
find_package(hwy 1.0.3 QUIET GLOBAL)
if(NOT hwy_FOUND)
  pkg_check_modules(libhwy QUIET IMPORTED_TARGET GLOBAL libhwy>=1.0.3)
  if(libhwy_FOUND)
    add_library(hwy::hwy ALIAS PkgConfig::libhwy)
  elseif(CMAKE_CROSSCOMPILING)
    # The headers are the same on every CPU; only x86's kernels need the library.
    find_path(SWAMP_HIGHWAY_HEADERS hwy/highway.h REQUIRED)
    add_library(hwy::hwy INTERFACE IMPORTED GLOBAL)
  else()
    message(FATAL_ERROR "swamp: Highway 1.0.3 or later was not found")
  endif()
endif()

find_package(nlohmann_json 3 REQUIRED GLOBAL)

if(SWAMP_WITH_OPENMP)
  find_package(OpenMP COMPONENTS CXX GLOBAL)
  if(NOT OpenMP_CXX_FOUND)
    message(STATUS "swamp: no OpenMP; the default backend will be 'threads'")
    set(SWAMP_WITH_OPENMP OFF)
  endif()
endif()

if(SWAMP_WITH_HWLOC)
  pkg_check_modules(hwloc IMPORTED_TARGET GLOBAL hwloc>=2.9)
  if(NOT hwloc_FOUND)
    message(STATUS "swamp: no hwloc; all cores are one core group")
    set(SWAMP_WITH_HWLOC OFF)
  endif()
endif()

# libswamp_mpi needs the C interface. Debian's MPI is Open MPI.
if(SWAMP_WITH_MPI)
  find_package(MPI QUIET COMPONENTS C GLOBAL)
  if(NOT MPI_C_FOUND)
    message(STATUS "swamp: no MPI; libswamp_mpi is not built")
    set(SWAMP_WITH_MPI OFF)
  endif()
endif()

# Executables and libraries of swamp's object libraries link swamp_dependencies.
add_library(swamp_dependencies INTERFACE)
target_link_libraries(swamp_dependencies INTERFACE hwy::hwy Threads::Threads)
if(SWAMP_WITH_OPENMP)
  target_link_libraries(swamp_dependencies INTERFACE OpenMP::OpenMP_CXX)
endif()
if(SWAMP_WITH_HWLOC)
  target_link_libraries(swamp_dependencies INTERFACE PkgConfig::hwloc)
endif()
