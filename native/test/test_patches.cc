// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include <doctest/doctest.h>
#include <rdma/fabric.h>
#include <sys/prctl.h>

#include <cstdlib>
#include <set>
#include <string>

#include "fabric/patches.h"
#include "test/fake_provider.h"
#include "test/harness.h"
#include "transport/shm/mapping.h"
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

std::set<std::string> neededBy(uint32_t libfabric, const char* kernel) {
  std::set<std::string> names;
  for (const PatchEntry& entry : patchTable()) {
    if (needsPatch(entry.patch, libfabric, kernel)) names.insert(entry.name);
  }
  return names;
}

}  // namespace

TEST_SUITE("patches") {
  TEST_CASE("are needed by those versions alone that have the fault") {
    using Names = std::set<std::string>;
    const Names always{"tcp-sockets"};
    CHECK(neededBy(FI_VERSION(1, 17), "4.19.0") ==
          Names{"stale-locks", "tcp-sockets", "shared-room"});
    CHECK(neededBy(FI_VERSION(1, 18), "4.19.0") == always);
    CHECK(neededBy(FI_VERSION(2, 1), "4.19.0") ==
          Names{"stale-locks", "stopped-queue", "peer-slots", "tcp-sockets", "shared-room"});
    CHECK(neededBy(FI_VERSION(2, 2), "4.19.0") == always);
    CHECK(neededBy(FI_VERSION(2, 6), "5.2.9") == always);
    CHECK(neededBy(FI_VERSION(2, 6), "5.3.0-1-amd64") == Names{"soft-iwarp", "tcp-sockets"});
    CHECK(neededBy(FI_VERSION(2, 6), "7.3.12") == Names{"soft-iwarp", "tcp-sockets"});
    CHECK(neededBy(FI_VERSION(2, 6), "7.4.0") == always);
    CHECK(neededBy(FI_VERSION(2, 6), "strange") == always);
  }

  TEST_CASE("are named each by its own name, in the order of their numbers") {
    std::set<std::string> names;
    for (size_t i = 0; i < patchTable().size(); ++i) {
      CHECK(static_cast<size_t>(patchTable()[i].patch) == i);
      CHECK(names.insert(patchTable()[i].name).second);
    }
  }

  TEST_CASE("are applied where needed, unless the user switches them off") {
    const PatchEntry& locks = patchNamed("stale-locks");
    CHECK(choosePatch(locks, true, {}) == PatchState::ready);
    CHECK(choosePatch(locks, false, {}) == PatchState::notNeeded);
    CHECK(choosePatch(locks, true, {.off = "stale-locks"}) == PatchState::off);
    CHECK(choosePatch(locks, true, {.off = "soft-iwarp,stale-locks"}) == PatchState::off);
    CHECK(choosePatch(locks, true, {.off = "all"}) == PatchState::off);
    CHECK(choosePatch(locks, true, {.off = "stale"}) == PatchState::ready);
    CHECK(choosePatch(locks, true, {.off = ",,"}) == PatchState::ready);
  }

  TEST_CASE("of another version are forced only where the layout does not matter") {
    CHECK(choosePatch(patchNamed("peer-slots"), false, {.on = "peer-slots"}) ==
          PatchState::notNeeded);
    CHECK(choosePatch(patchNamed("soft-iwarp"), false, {.on = "soft-iwarp"}) == PatchState::ready);
    CHECK(choosePatch(patchNamed("soft-iwarp"), false, {.off = "all", .on = "soft-iwarp"}) ==
          PatchState::off);
  }

  TEST_CASE("that nobody needs are off until the user asks for them") {
    const PatchEntry& events = patchNamed("connection-events");
    CHECK(choosePatch(events, true, {}) == PatchState::off);
    CHECK(choosePatch(events, false, {.on = "connection-events"}) == PatchState::ready);
  }

  TEST_CASE("are read from the environment, at each port that is opened") {
    REQUIRE(test::haveLibfabric());
    bool needed = needsPatch(Patch::staleLocks, library()->loadedVersion, "");
    CHECK(allowsPatch(Patch::staleLocks) == needed);
    setenv("CINNABAR_NO_PATCHES", "stale-locks", 1);
    CHECK_FALSE(allowsPatch(Patch::staleLocks));
    unsetenv("CINNABAR_NO_PATCHES");
    CHECK(allowsPatch(Patch::staleLocks) == needed);
  }

  TEST_CASE("a slot that may not be cleared is not used again") {
    for (bool keeps : {false, true}) {
      CAPTURE(keeps);
      test::FakeProvider provider;
      auto endpoint = provider.endpoint();
      shm::Mappings mappings(*endpoint);
      if (keeps) mappings.keepSlots();
      auto mapping = mappings.map("somebody", {});
      REQUIRE(mapping);
      mapping->answered = true;
      mapping.reset();
      CHECK(mappings.hasRetired() == !keeps);
      mappings.onDrained();
      CHECK(provider.removed.size() == (keeps ? 0u : 1u));
    }
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
