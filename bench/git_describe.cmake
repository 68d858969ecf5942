# Writes ${OUT}, a header with the source's version as git names it; only when
# it changed, so that nothing is compiled again for nothing.
set(described "not a git checkout")
find_package(Git QUIET)
if(Git_FOUND)
  execute_process(
    COMMAND ${GIT_EXECUTABLE} describe --always --dirty
    WORKING_DIRECTORY ${SOURCE}
    OUTPUT_VARIABLE output OUTPUT_STRIP_TRAILING_WHITESPACE
    RESULT_VARIABLE failed ERROR_QUIET)
  if(NOT failed)
    set(described "${output}")
  endif()
endif()
file(CONFIGURE OUTPUT ${OUT}
  CONTENT "#define SWAMP_GIT_DESCRIBE \"${described}\"\n")
