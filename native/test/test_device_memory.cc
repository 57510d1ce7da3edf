// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include <doctest/doctest.h>

#include "fabric/device_memory.h"
#include "harness.h"

using namespace cinnabar;

TEST_SUITE("device memory") {
  TEST_CASE("says of every scheme and kind who does not offer it, or what is missing") {
    if (!test::haveLibfabric()) return;
    for (fabric::Scheme scheme : {fabric::Scheme::tcp, fabric::Scheme::shm}) {
      for (const char* kind : {"cuda", "rocr", "levelZero"}) {
        std::string reason = fabric::reasonAgainstDeviceMemory(*fabric::library(), scheme, kind);
        MESSAGE(std::string(kind) << ": " << reason);
        if (reason.empty()) continue;  // a machine that has it
        CHECK(reason.find("libfabric ") != std::string::npos);
        CHECK(reason.find("FI_HMEM") != std::string::npos);
      }
    }
  }

  TEST_CASE("knows no other kinds") {
    if (!test::haveLibfabric()) return;
    CHECK(fabric::reasonAgainstDeviceMemory(*fabric::library(), fabric::Scheme::tcp, "metal") ==
          "no such kind of device memory: metal");
  }
}
