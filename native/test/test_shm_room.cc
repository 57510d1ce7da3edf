// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "base/fd.h"
#include "fabric/patches.h"
#include "fabric/shm_room.h"
#include "test/harness.h"

using namespace cinnabar;
using namespace cinnabar::test;
using fabric::Scheme;

namespace {

/// The file of a port's region.
base::Fd regionOf(const std::string& name) {
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    std::string file = entry.path().filename().string();
    if (file.find("~" + name + "~") != std::string::npos)
      return base::Fd(open(entry.path().c_str(), O_RDWR | O_CLOEXEC));
  }
  return base::Fd();
}

uint64_t heldBytes(int file) {
  struct stat info {};
  return fstat(file, &info) == 0 ? uint64_t{512} * static_cast<uint64_t>(info.st_blocks) : 0;
}

}  // namespace

TEST_SUITE("shm room") {
  TEST_CASE("a region holds the pages of its queues and no others, until the provider copies") {
    REQUIRE(haveLibfabric());
    if (!fabric::allowsPatch(fabric::Patch::sharedRoom)) return;
    TestPort port(Scheme::shm);
    REQUIRE(port.open());
    base::Fd region = regionOf(port.port->transport().name());
    REQUIRE(region);
    uint64_t held = heldBytes(region.get());
    // 256 messages of 4.3 KiB, and what is known of peers.
    CHECK(held > 1 << 20);
    CHECK(held < 2 << 20);
    REQUIRE(fabric::reserveCopies(region.get()) == 0);
    // 256 buffers of 32 KiB.
    CHECK(heldBytes(region.get()) > held + (7 << 20));
    // A region in use is trimmed as a new one is: pages full of zeros alone are given back.
    fabric::trimRegion(region.get());
    CHECK(heldBytes(region.get()) < held + (1 << 20));
  }
}
