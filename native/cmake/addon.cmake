# SPDX-License-Identifier: Apache-2.0
# cmake-js names the include folders; without it they are found where npm puts them.
if(NOT CMAKE_JS_INC)
  set(modules ${CMAKE_CURRENT_SOURCE_DIR}/../node_modules)
  set(CMAKE_JS_INC ${modules}/node-api-headers/include ${modules}/node-addon-api)
endif()

add_library(cinnabar SHARED
  binding/addon.cc
  binding/arguments.cc
  binding/describe.cc
  binding/instance.cc
  binding/memory.cc
  binding/open.cc
  binding/verbs.cc
  binding/wake.cc)
target_include_directories(cinnabar SYSTEM PRIVATE ${CMAKE_JS_INC})
target_compile_definitions(cinnabar PRIVATE NAPI_VERSION=9 NAPI_DISABLE_CPP_EXCEPTIONS
  # A worker may be terminated inside any of our functions; Node-API then refuses to throw, which must not end the process.
  NODE_API_SWALLOW_UNTHROWABLE_EXCEPTIONS NODE_GYP_MODULE_NAME=cinnabar)
target_compile_options(cinnabar PRIVATE -fno-exceptions)
target_link_libraries(cinnabar PRIVATE cinnabar_engine ${CMAKE_JS_LIB})
# Node closes what only a worker has loaded when that ends; functions of ours stand in libfabric's tables and among the exit handlers for good.
target_link_options(cinnabar PRIVATE -Wl,-Bsymbolic -Wl,--exclude-libs,ALL -Wl,-z,nodelete)
if(NOT CINNABAR_SANITIZE)
  target_link_options(cinnabar PRIVATE -static-libstdc++ -static-libgcc)
endif()
set_target_properties(cinnabar PROPERTIES PREFIX "" SUFFIX ".node" CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
