# swamp_find_torch() finds PyTorch: it sets SWAMP_TORCH_FOUND and, where that is
# false, SWAMP_TORCH_WHY_NOT; the target is `torch`, its version Torch_VERSION.
#
# The python SWAMP_TORCH_PYTHON goes first: Debian's libtorch-dev lies in the
# system's path, before any wheel. Then CMAKE_PREFIX_PATH and Torch_DIR, then
# python3: a wheel brings a CMake package, but only its python knows where.
set(SWAMP_TORCH_PYTHON "" CACHE FILEPATH
  "python3 that can import torch; else the environment variable of that name")
if(NOT SWAMP_TORCH_PYTHON AND DEFINED ENV{SWAMP_TORCH_PYTHON})
  # Kept: a build that configures anew may not have the variable.
  set_property(CACHE SWAMP_TORCH_PYTHON PROPERTY VALUE
    "$ENV{SWAMP_TORCH_PYTHON}")
endif()

# swamp_ask_python(PYTHON OUT): the folder of its PyTorch's CMake packages; empty
# where there is none.
function(swamp_ask_python python out)
  execute_process(
    COMMAND ${python} -c "import torch; print(torch.utils.cmake_prefix_path)"
    OUTPUT_VARIABLE folder OUTPUT_STRIP_TRAILING_WHITESPACE
    ERROR_QUIET RESULT_VARIABLE failed)
  if(failed)
    set(folder "")
  endif()
  set(${out} "${folder}" PARENT_SCOPE)
endfunction()

# swamp_find_torch_in(FOLDER): there and nowhere else.
macro(swamp_find_torch_in folder)
  foreach(name Torch_DIR Caffe2_DIR TORCH_LIBRARY c10_LIBRARY)
    unset(${name} CACHE)  # of another PyTorch
  endforeach()
  find_package(Torch QUIET GLOBAL PATHS "${folder}" NO_DEFAULT_PATH)
endmacro()

macro(swamp_find_torch)
  # What PyTorch's package warns of when it does not find it; not used here.
  set(kineto_LIBRARY "not used" CACHE INTERNAL "")
  set(Torch_FOUND FALSE)
  set(SWAMP_TORCH_WHY_NOT "no Torch")
  if(SWAMP_TORCH_PYTHON)
    swamp_ask_python("${SWAMP_TORCH_PYTHON}" folder)
    if(folder)
      swamp_find_torch_in("${folder}")
    else()
      set(SWAMP_TORCH_WHY_NOT "${SWAMP_TORCH_PYTHON} cannot import torch")
    endif()
  else()
    find_package(Torch QUIET GLOBAL)
    if(NOT Torch_FOUND)
      find_package(Python3 QUIET COMPONENTS Interpreter)
      if(Python3_EXECUTABLE)
        swamp_ask_python("${Python3_EXECUTABLE}" folder)
        if(folder)
          swamp_find_torch_in("${folder}")
        endif()
      endif()
    endif()
  endif()
  set(SWAMP_TORCH_FOUND ${Torch_FOUND})
endmacro()
