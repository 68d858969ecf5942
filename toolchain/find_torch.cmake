# swamp_find_torch() finds PyTorch 2.10 or newer: it sets SWAMP_TORCH_FOUND and,
# if that is false, SWAMP_TORCH_WHY_NOT; the target is `torch`, its version
# Torch_VERSION.
#
# SWAMP_TORCH_PYTHON has precedence, because CMake finds an installed libtorch
# before any wheel; if pip runs CMake, its python has. CMAKE_PREFIX_PATH and
# Torch_DIR come next, then python3: a wheel contains a CMake package, and python can
# print its folder.
set(SWAMP_TORCH_PYTHON "" CACHE FILEPATH
  "python3 that can import torch; else the environment variable of that name")
if(NOT SWAMP_TORCH_PYTHON AND DEFINED ENV{SWAMP_TORCH_PYTHON})
  # In the cache, because the variable may be unset when CMake runs again.
  set_property(CACHE SWAMP_TORCH_PYTHON PROPERTY VALUE
    "$ENV{SWAMP_TORCH_PYTHON}")
elseif(NOT SWAMP_TORCH_PYTHON AND SKBUILD)
  set_property(CACHE SWAMP_TORCH_PYTHON PROPERTY VALUE "${Python3_EXECUTABLE}")
endif()

# swamp_torch_folder(PYTHON OUT) sets OUT to the folder of the CMake packages of
# this python's PyTorch, or to "".
function(swamp_torch_folder python out)
  # If pip isolates the build, its environment variables hide the packages that
  # are installed; -E ignores these variables.
  foreach(option IN ITEMS -B -E)
    execute_process(
      COMMAND ${python} ${option} -c
        "import torch; print(torch.utils.cmake_prefix_path)"
      OUTPUT_VARIABLE folder OUTPUT_STRIP_TRAILING_WHITESPACE
      ERROR_QUIET RESULT_VARIABLE failed)
    if(NOT failed)
      break()
    endif()
    set(folder "")
  endforeach()
  set(${out} "${folder}" PARENT_SCOPE)
endfunction()

# swamp_find_torch_in(FOLDER) finds PyTorch only there.
macro(swamp_find_torch_in folder)
  foreach(name Torch_DIR Caffe2_DIR TORCH_LIBRARY c10_LIBRARY)
    unset(${name} CACHE)  # they may be of another PyTorch
  endforeach()
  find_package(Torch 2.10 QUIET GLOBAL PATHS "${folder}" NO_DEFAULT_PATH)
endmacro()

macro(swamp_find_torch)
  # PyTorch's package warns if it does not find this library, which is not used.
  set(kineto_LIBRARY "not used" CACHE INTERNAL "")
  set(Torch_FOUND FALSE)
  set(SWAMP_TORCH_WHY_NOT "no PyTorch 2.10 or newer")
  if(SWAMP_TORCH_PYTHON)
    swamp_torch_folder("${SWAMP_TORCH_PYTHON}" folder)
    if(folder)
      swamp_find_torch_in("${folder}")
    else()
      set(SWAMP_TORCH_WHY_NOT "${SWAMP_TORCH_PYTHON} cannot import torch")
      if(SKBUILD)
        string(APPEND SWAMP_TORCH_WHY_NOT "; install PyTorch and "
          "scikit-build-core, and run `pip install --no-build-isolation .`")
      endif()
    endif()
  else()
    find_package(Torch 2.10 QUIET GLOBAL)
    if(NOT Torch_FOUND)
      find_package(Python3 QUIET COMPONENTS Interpreter)
      if(Python3_EXECUTABLE)
        swamp_torch_folder("${Python3_EXECUTABLE}" folder)
        if(folder)
          swamp_find_torch_in("${folder}")
        endif()
      endif()
    endif()
  endif()
  set(SWAMP_TORCH_FOUND ${Torch_FOUND})
endmacro()
