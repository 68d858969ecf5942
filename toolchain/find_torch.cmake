# swamp_find_torch() finds PyTorch 2.10 or newer, built for any device: it defines the
# target swamp::torch, which has the headers and the libraries for CPUs, and sets
# SWAMP_TORCH_FOLDER and SWAMP_TORCH_VERSION. SWAMP_TORCH_WHY_NOT is empty, or the
# reason if there is none.
#
# PyTorch's CMake package is searched for, but not used: that of a build for CUDA,
# which `pip install torch` installs, fails without the CUDA toolkit.
#
# SWAMP_TORCH_PYTHON has precedence, because CMake finds an installed libtorch
# before any wheel; if pip runs CMake, its python has. CMAKE_PREFIX_PATH and
# Torch_DIR come next, then python3.
set(SWAMP_TORCH_PYTHON "" CACHE FILEPATH
  "python3 that can import torch; else the environment variable of that name")
if(NOT SWAMP_TORCH_PYTHON AND DEFINED ENV{SWAMP_TORCH_PYTHON})
  # In the cache, because the variable may be unset when CMake runs again.
  set_property(CACHE SWAMP_TORCH_PYTHON PROPERTY VALUE
    "$ENV{SWAMP_TORCH_PYTHON}")
elseif(NOT SWAMP_TORCH_PYTHON AND SKBUILD)
  set_property(CACHE SWAMP_TORCH_PYTHON PROPERTY VALUE "${Python3_EXECUTABLE}")
endif()

# swamp_add_torch(TARGET FOLDER) does the same for TARGET and the PyTorch in FOLDER.
function(swamp_add_torch target folder)
  get_filename_component(SWAMP_TORCH_FOLDER "${folder}" ABSOLUTE)
  set(include ${SWAMP_TORCH_FOLDER}/include)
  set(SWAMP_TORCH_VERSION "")
  if(EXISTS ${include}/torch/headeronly/version.h)
    file(STRINGS ${include}/torch/headeronly/version.h numbers
      REGEX "VERSION_(MAJOR|MINOR|PATCH) [0-9]")
    string(REGEX REPLACE "[^0-9;]" "" numbers "${numbers}")
    list(JOIN numbers "." SWAMP_TORCH_VERSION)
  endif()
  foreach(name IN ITEMS torch_cpu c10)
    find_library(swamp_${name} ${name} PATHS ${SWAMP_TORCH_FOLDER}/lib NO_CACHE
      NO_DEFAULT_PATH)
  endforeach()
  if(SWAMP_TORCH_VERSION VERSION_LESS 2.10 OR NOT swamp_torch_cpu OR NOT swamp_c10)
    if(NOT SWAMP_TORCH_VERSION AND EXISTS ${SWAMP_TORCH_FOLDER}/version.py)
      file(STRINGS ${SWAMP_TORCH_FOLDER}/version.py line REGEX "^__version__ = ")
      string(REGEX REPLACE "[^0-9.]*([0-9.]+).*" "\\1" SWAMP_TORCH_VERSION "${line}")
    endif()
    set(SWAMP_TORCH_WHY_NOT "${SWAMP_TORCH_FOLDER} has PyTorch ${SWAMP_TORCH_VERSION}, \
expected headers and libraries of 2.10 or newer")
    return(PROPAGATE SWAMP_TORCH_WHY_NOT)
  endif()
  set(standard 17)
  file(STRINGS ${include}/ATen/ATen.h line REGEX "error C\\+\\+20 ")
  if(line)
    set(standard 20)
  endif()
  if(NOT TARGET ${target})
    add_library(${target} INTERFACE IMPORTED GLOBAL)
  endif()
  set_target_properties(${target} PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${include};${include}/torch/csrc/api/include"
    INTERFACE_LINK_LIBRARIES "${swamp_torch_cpu};${swamp_c10}"
    INTERFACE_COMPILE_FEATURES cxx_std_${standard})
  set(SWAMP_TORCH_WHY_NOT "")
  return(PROPAGATE SWAMP_TORCH_FOLDER SWAMP_TORCH_VERSION SWAMP_TORCH_WHY_NOT)
endfunction()

function(swamp_find_torch)
  set(SWAMP_TORCH_WHY_NOT "no PyTorch 2.10 or newer")
  set(python "${SWAMP_TORCH_PYTHON}")
  if(NOT python)
    find_package(Torch QUIET CONFIGS TorchConfigVersion.cmake)
    if(Torch_FOUND)
      swamp_add_torch(swamp::torch ${Torch_DIR}/../../..)
    endif()
    if(SWAMP_TORCH_WHY_NOT)
      find_package(Python3 QUIET COMPONENTS Interpreter)
      set(python "${Python3_EXECUTABLE}")
    endif()
  endif()
  if(python)
    # If pip isolates the build, its environment variables hide the packages that
    # are installed; -E ignores these variables.
    foreach(option IN ITEMS -B -E)
      execute_process(
        COMMAND ${python} ${option} -c
          "import torch; print(torch.utils.cmake_prefix_path)"
        OUTPUT_VARIABLE folder OUTPUT_STRIP_TRAILING_WHITESPACE
        ERROR_VARIABLE errors RESULT_VARIABLE failed)
      if(NOT failed)
        swamp_add_torch(swamp::torch ${folder}/../..)
        if(SWAMP_TORCH_WHY_NOT)
          string(PREPEND SWAMP_TORCH_WHY_NOT "${python}: ")
        endif()
        break()
      endif()
    endforeach()
    if(failed AND NOT Torch_FOUND)
      string(STRIP "${failed}\n${errors}" errors)
      string(REGEX REPLACE ".*\n" "" errors "${errors}")
      set(SWAMP_TORCH_WHY_NOT "${python} cannot import torch: ${errors}")
      if(SKBUILD)
        string(APPEND SWAMP_TORCH_WHY_NOT "; install PyTorch and "
          "scikit-build-core, and run `pip install --no-build-isolation .`")
      endif()
    endif()
  endif()
  return(PROPAGATE SWAMP_TORCH_FOLDER SWAMP_TORCH_VERSION SWAMP_TORCH_WHY_NOT)
endfunction()
