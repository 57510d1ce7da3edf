# SPDX-License-Identifier: Apache-2.0
# Headers only: the library itself is opened at run time.
find_path(LIBFABRIC_INCLUDE_DIR rdma/fabric.h HINTS ${CMAKE_CURRENT_SOURCE_DIR}/include REQUIRED)
add_library(cinnabar_libfabric_headers INTERFACE)
target_include_directories(cinnabar_libfabric_headers SYSTEM INTERFACE ${LIBFABRIC_INCLUDE_DIR})
