# SPDX-License-Identifier: Apache-2.0
# Toolchain of the addon in the npm package: this machine's compiler over the headers and libraries of an old Debian, so
# that the binary runs wherever Node's own do. -DTRIPLE=… -DSYSROOT=… -DGCC=… say which. docs/design/packaging.md.
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES TRIPLE SYSROOT GCC)
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSROOT ${SYSROOT})
set(CMAKE_CXX_COMPILER ${TRIPLE}-g++)
set(folder ${SYSROOT}/usr/lib/gcc/${TRIPLE}/${GCC})
set(headers ${SYSROOT}/usr/include)
execute_process(COMMAND ${TRIPLE}-g++ -print-file-name=include OUTPUT_VARIABLE own OUTPUT_STRIP_TRAILING_WHITESPACE)
# Without -nostdinc Debian's cross compiler reads its own glibc's headers first. All symbols then look old, and yet
# constants are those of the newer glibc.
string(JOIN " -isystem " from -nostdinc ${headers}/c++/${GCC} ${headers}/${TRIPLE}/c++/${GCC}
  ${headers}/c++/${GCC}/backward ${own} ${headers}/${TRIPLE} ${headers})
# The same bytes wherever the checkout is.
set(CMAKE_CXX_FLAGS_INIT "${from} -ffile-prefix-map=${CMAKE_SOURCE_DIR}=. -ffile-prefix-map=${CMAKE_BINARY_DIR}=build")
# GCC 12 over libstdc++ 10 takes what std::function moves for uninitialized.
string(APPEND CMAKE_CXX_FLAGS_INIT " -Wno-maybe-uninitialized")
# Without -L the native compiler links the C library beside it.
set(libraries "-B${folder} -B${SYSROOT}/usr/lib/${TRIPLE} -L${folder} -L${SYSROOT}/usr/lib/${TRIPLE} -L${SYSROOT}/lib/${TRIPLE}")
set(CMAKE_SHARED_LINKER_FLAGS_INIT "${libraries}")
set(CMAKE_EXE_LINKER_FLAGS_INIT "${libraries}")
