# SPDX-License-Identifier: Apache-2.0
find_path(DOCTEST_INCLUDE_DIR doctest/doctest.h REQUIRED)

add_executable(cinnabar_native_tests
  test/main.cc
  test/child.cc
  test/queue_pair_client.cc
  test/test_absence.cc
  test/test_address.cc
  test/test_aead.cc
  test/test_allocation.cc
  test/test_byte_ring.cc
  test/test_connections.cc
  test/test_device_connections.cc
  test/test_crc32c.cc
  test/test_doorbell.cc
  test/test_guard.cc
  test/test_hostile_neighbour.cc
  test/test_keys.cc
  test/test_levels.cc
  test/test_local_connection.cc
  test/test_mapped_file.cc
  test/test_library.cc
  test/test_needs.cc
  test/test_patches.cc
  test/test_peer_credentials.cc
  test/test_polled.cc
  test/test_port.cc
  test/test_processes.cc
  test/test_queue.cc
  test/test_queue_pairs.cc
  test/test_quirks.cc
  test/test_ring.cc
  test/test_tcp_keys.cc
  test/test_tcp_streams.cc
  test/test_thread.cc
  test/test_threads.cc
  test/test_transfers.cc
  test/test_verbs_report.cc)
# Node's packages have the header of libuv in a folder of their own.
find_path(UV_INCLUDE_DIR uv.h PATH_SUFFIXES node)
if(UV_INCLUDE_DIR)
  target_sources(cinnabar_native_tests PRIVATE test/test_uv_abi.cc)
  set_source_files_properties(test/test_uv_abi.cc PROPERTIES
    INCLUDE_DIRECTORIES "${UV_INCLUDE_DIR}" SKIP_UNITY_BUILD_INCLUSION ON)
endif()
target_include_directories(cinnabar_native_tests SYSTEM PRIVATE ${DOCTEST_INCLUDE_DIR})
target_link_libraries(cinnabar_native_tests PRIVATE cinnabar_engine)
set_target_properties(cinnabar_native_tests PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR})
# doctest expands each assertion into code of its own; this form and -O1 compile in a third of the time. What is tested
# keeps its optimisation.
target_compile_definitions(cinnabar_native_tests PRIVATE DOCTEST_CONFIG_SUPER_FAST_ASSERTS)
if(NOT CMAKE_BUILD_TYPE STREQUAL "Debug")
  target_compile_options(cinnabar_native_tests PRIVATE -O1)
endif()
if(CINNABAR_UNITY)
  # Several units, which compile at the same time.
  set_target_properties(cinnabar_native_tests PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 9)
endif()
# Each case is a test of ctest, found by asking the program after it was built.
find_package(doctest REQUIRED)
include(doctest)
doctest_discover_tests(cinnabar_native_tests PROPERTIES TIMEOUT 600)
