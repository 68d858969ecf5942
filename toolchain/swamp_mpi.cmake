# The component mpi of swamp's CMake package: swamp::mpi.
#
# A shared libswamp_mpi is linked to MPI; users of a static one must link MPI.
if(swamp_is_static)
  get_property(swamp_languages GLOBAL PROPERTY ENABLED_LANGUAGES)
  if(NOT "C" IN_LIST swamp_languages)
    enable_language(C)
  endif()
  find_package(MPI QUIET COMPONENTS C)
  if(NOT MPI_C_FOUND)
    set(swamp_mpi_FOUND FALSE)
    set(swamp_NOT_FOUND_MESSAGE
      "the static libswamp_mpi needs MPI, which CMake does not find")
    return()
  endif()
endif()
include(${CMAKE_CURRENT_LIST_DIR}/swampMpiTargets.cmake)
