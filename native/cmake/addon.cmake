# SPDX-License-Identifier: Apache-2.0
# The headers of Node-API: from cmake-js, from where npm puts them in a checkout, or from beside the sources in the npm
# package.
set(modules ${CMAKE_CURRENT_SOURCE_DIR}/../node_modules)
set(headers ${modules}/node-api-headers/include ${modules}/node-addon-api)
if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/include/node-api)
  set(headers ${CMAKE_CURRENT_SOURCE_DIR}/include/node-api)
endif()
if(CMAKE_JS_INC)
  set(headers ${CMAKE_JS_INC})
endif()
set(CINNABAR_NODE_API_INCLUDE ${headers}
  CACHE STRING "Folders of node_api.h and napi.h")

add_library(cinnabar SHARED
  binding/addon.cc
  binding/arguments.cc
  binding/crypto.cc
  binding/describe.cc
  binding/files.cc
  binding/instance.cc
  binding/mapped_file.cc
  binding/memory.cc
  binding/open.cc
  binding/queue_pairs.cc
  binding/verbs.cc
  binding/wake.cc)
target_include_directories(cinnabar SYSTEM PRIVATE ${CINNABAR_NODE_API_INCLUDE})
target_compile_definitions(cinnabar PRIVATE NAPI_VERSION=9 NAPI_DISABLE_CPP_EXCEPTIONS
  # A worker may be terminated inside any of our functions; Node-API then refuses to throw, which must not end the process.
  NODE_API_SWALLOW_UNTHROWABLE_EXCEPTIONS NODE_GYP_MODULE_NAME=cinnabar)
target_compile_options(cinnabar PRIVATE -fno-exceptions)
target_link_libraries(cinnabar PRIVATE cinnabar_engine)
# Node closes what only a worker has loaded when that ends; functions of ours stand in libfabric's tables and among the exit handlers for good.
target_link_options(cinnabar PRIVATE -Wl,-Bsymbolic -Wl,--exclude-libs,ALL -Wl,-z,nodelete)
if(NOT CINNABAR_SANITIZE)
  target_link_options(cinnabar PRIVATE -static-libstdc++ -static-libgcc)
endif()
set_target_properties(cinnabar PROPERTIES PREFIX "" SUFFIX ".node" CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
cinnabar_unity(cinnabar)
