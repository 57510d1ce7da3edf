// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include <doctest/doctest.h>
#include <rdma/fabric.h>
#include <sys/prctl.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "fabric/patches.h"
#include "test/fake_provider.h"
#include "test/harness.h"
#include "transport/shm/process_memory.h"

using namespace cinnabar;
using namespace cinnabar::fabric;

namespace {

const PatchEntry& patchNamed(const std::string& name) {
  for (const PatchEntry& entry : patchTable()) {
    if (entry.name == name) return entry;
  }
  FAIL("no patch " << name);
  return patchTable()[0];
}

std::set<std::string> neededBy(uint32_t libfabric) {
  std::set<std::string> names;
  for (const PatchEntry& entry : patchTable()) {
    if (needsPatch(entry.patch, libfabric)) names.insert(entry.name);
  }
  return names;
}

}  // namespace

TEST_SUITE("patches") {
  TEST_CASE("are needed by every libfabric so far, but for what its version does not decide") {
    const std::set<std::string> always{"connection-refusals", "kernel-symbols", "tcp-sockets"};
    for (uint32_t minor : {13, 17}) CHECK(neededBy(FI_VERSION(1, minor)) == always);
    for (uint32_t minor : {1, 2, 6}) CHECK(neededBy(FI_VERSION(2, minor)) == always);
  }

  TEST_CASE("are named each by its own name, in the order of their numbers") {
    std::set<std::string> names;
    for (size_t i = 0; i < patchTable().size(); ++i) {
      CHECK(static_cast<size_t>(patchTable()[i].patch) == i);
      CHECK(names.insert(patchTable()[i].name).second);
    }
  }

  TEST_CASE("are applied where needed, unless the user switches them off") {
    const PatchEntry& sockets = patchNamed("tcp-sockets");
    CHECK(choosePatch(sockets, true, {}) == PatchState::ready);
    CHECK(choosePatch(sockets, false, {}) == PatchState::notNeeded);
    CHECK(choosePatch(sockets, true, {.off = "tcp-sockets"}) == PatchState::off);
    CHECK(choosePatch(sockets, true, {.off = "process-copies,tcp-sockets"}) == PatchState::off);
    CHECK(choosePatch(sockets, true, {.off = "all"}) == PatchState::off);
    CHECK(choosePatch(sockets, true, {.off = "tcp"}) == PatchState::ready);
    CHECK(choosePatch(sockets, true, {.off = ",,"}) == PatchState::ready);
  }

  TEST_CASE("of another version are forced only where the layout does not matter") {
    CHECK(choosePatch(patchNamed("process-copies"), false, {.on = "process-copies"}) ==
          PatchState::notNeeded);
    CHECK(choosePatch(patchNamed("tcp-sockets"), false, {.on = "tcp-sockets"}) ==
          PatchState::ready);
    CHECK(choosePatch(patchNamed("tcp-sockets"), false, {.off = "all", .on = "tcp-sockets"}) ==
          PatchState::off);
  }

  TEST_CASE("are read from the environment, at each port that is opened") {
    REQUIRE(test::haveLibfabric());
    bool needed = needsPatch(Patch::tcpSockets, library()->loadedVersion);
    CHECK(allowsPatch(Patch::tcpSockets) == needed);
    setenv("CINNABAR_NO_PATCHES", "tcp-sockets", 1);
    CHECK_FALSE(allowsPatch(Patch::tcpSockets));
    unsetenv("CINNABAR_NO_PATCHES");
    CHECK(allowsPatch(Patch::tcpSockets) == needed);
  }

  TEST_CASE("a process is alone whose user runs no other in another control group") {
    namespace fs = std::filesystem;
    fs::path proc = fs::temp_directory_path() / ("proc." + std::to_string(getpid()));
    auto process = [&](const char* name, const char* group) {
      fs::create_directories(proc / name);
      std::ofstream(proc / name / "cgroup") << group;
    };
    CHECK_FALSE(shm::isAlone(proc));
    process("self", "0::/service");
    process("17", "0::/service");
    process("sys", "0::/no-process");
    fs::create_directories(proc / "18");  // has ended
    CHECK(shm::isAlone(proc));
    process("19", "0::/shell");
    CHECK_FALSE(shm::isAlone(proc));
    fs::remove_all(proc);
  }

  TEST_CASE("copies are permitted to any process, or to one and its descendants") {
    constexpr pid_t kParent = 4711;
    CHECK(shm::permittedTracer("", kParent) == PR_SET_PTRACER_ANY);
    CHECK(shm::permittedTracer("any", kParent) == PR_SET_PTRACER_ANY);
    CHECK(shm::permittedTracer("parent", kParent) == 4711);
    CHECK(shm::permittedTracer("17", kParent) == 17);
    CHECK(shm::permittedTracer("0", kParent) == PR_SET_PTRACER_ANY);
    CHECK(shm::permittedTracer("17x", kParent) == PR_SET_PTRACER_ANY);
  }
}
