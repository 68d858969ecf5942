# Fails unless the READMEs show the tested examples as they are.
# Usage: cmake -DSOURCE=<repository root> -P readmes.cmake
set(missing "")
macro(shows readme)
  file(READ ${SOURCE}/${readme}/README.md text)
  foreach(example ${ARGN})
    file(READ ${SOURCE}/tests/${example} code)
    string(FIND "${text}" "${code}" position)
    if(position EQUAL -1)
      string(APPEND missing "\n${readme}/README.md does not show tests/${example}")
    endif()
  endforeach()
endmacro()

shows(include/swamp examples/example.c examples/example.cpp torch/example.py
  torch/example.cpp install/consumer_aten/CMakeLists.txt
  install/consumer_c/CMakeLists.txt install/consumer_pkg_config/build
  install/subproject/CMakeLists.txt install/fetch_content/CMakeLists.txt)
shows(master/optim examples/grad_scaler.cpp examples/mixed_precision.cpp)
shows(master/scaler examples/scaler.cpp)
shows(master/cli examples/mxfp8.py)
shows(master/mpi examples/ranks.cpp install/consumer_mpi/CMakeLists.txt)
shows(master/aten/python torch/example_package.py)
shows(. torch/example_half.py torch/example_inference.py)
shows(toolchain/sunway sunway/programs/readme/master.c
  sunway/programs/readme/slave.c sunway/programs/readme/Makefile)
if(missing)
  message(FATAL_ERROR "${missing}")
endif()
