# Fails unless LIBRARY exports swamp_* and namespace swamp alone: a symbol of
# std, hwy or json would bind to, or be bound by, another library's.
execute_process(
  COMMAND ${NM} -D --defined-only --demangle --format=posix ${LIBRARY}
  OUTPUT_VARIABLE text RESULT_VARIABLE result)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "${NM} ${LIBRARY}: ${result}")
endif()
string(REPLACE ";" "," text "${text}")
string(REGEX MATCHALL "[^\n]+" lines "${text}")
set(bad "")
set(c_functions 0)
set(classes 0)
foreach(line IN LISTS lines)
  if(line MATCHES "^swamp_[a-z_]+ T ")
    math(EXPR c_functions "${c_functions} + 1")
  elseif(line MATCHES "^(typeinfo for |typeinfo name for |vtable for )?swamp::")
    math(EXPR classes "${classes} + 1")
  else()
    string(APPEND bad "\n  ${line}")
  endif()
endforeach()
if(bad)
  message(FATAL_ERROR "${LIBRARY} must not export:${bad}")
endif()
# What is private to a component stays hidden.
foreach(component slave runtime master)
  if(text MATCHES "swamp::${component}::[^\n]*")
    message(FATAL_ERROR "${LIBRARY} must not export: ${CMAKE_MATCH_0}")
  endif()
endforeach()
if(c_functions LESS 9 OR classes LESS 5)
  message(FATAL_ERROR "${LIBRARY} exports too little:\n${text}")
endif()

# A child of fork() would wait forever for a local static that another thread
# initializes; see MadeOnce of runtime/fork_cancel.h.
execute_process(COMMAND ${NM} --demangle ${LIBRARY} OUTPUT_VARIABLE text)
if(text MATCHES "guard variable for [^\n]*")
  message(FATAL_ERROR "${LIBRARY} must not have: ${CMAKE_MATCH_0}")
endif()
message(STATUS "${c_functions} C functions, ${classes} symbols of swamp::")
