# CMake toolchain file of the presets aarch64, s390x and riscv64: Debian's cross
# compiler for SWAMP_ARCHITECTURE, and qemu-user to run what it makes.
#
# The compiler's own packages have the C and C++ libraries and libgomp. Headers
# that are the same on every architecture are found in /usr; libraries only if
# they are installed for that architecture (toolchain/install-deps --cross).
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES SWAMP_ARCHITECTURE SWAMP_QEMU_OPTIONS)
set(SWAMP_QEMU_OPTIONS "" CACHE STRING
  "Options of qemu-user, a list: -cpu;max,sve-max-vq=4")

set(triple ${SWAMP_ARCHITECTURE}-linux-gnu)
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR ${SWAMP_ARCHITECTURE})
set(CMAKE_C_COMPILER ${triple}-gcc)
set(CMAKE_CXX_COMPILER ${triple}-g++)
# With its folder, because some tests change PATH.
find_program(SWAMP_QEMU qemu-${SWAMP_ARCHITECTURE})
mark_as_advanced(SWAMP_QEMU)
set(CMAKE_CROSSCOMPILING_EMULATOR
  ${SWAMP_QEMU} -L /usr/${triple} ${SWAMP_QEMU_OPTIONS})

set(CMAKE_FIND_ROOT_PATH /usr/${triple} /)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(ENV{PKG_CONFIG_LIBDIR} /usr/lib/${triple}/pkgconfig)
