// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include <doctest/doctest.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "fabric/linkage.h"
#include "test/harness.h"
#include "transport/verbs/connection_events.h"
#include "transport/verbs/kernel.h"

using namespace cinnabar;
using namespace cinnabar::verbs;
using fabric::LoadedObject;
using fabric::replaceInLinkage;

namespace {

bool isReadable(const ConnectionWatch& watch) {
  pollfd fd{watch.fd(), POLLIN, 0};
  return poll(&fd, 1, 0) > 0;
}

pid_t pretend() { return 1; }

}  // namespace

TEST_SUITE("connections") {
  TEST_CASE("a watch is told in order, and how much it has missed") {
    if (!test::haveLibfabric()) return;
    setenv("CINNABAR_PATCHES", "connection-events", 1);
    std::string reason;
    auto watch = ConnectionWatch::open(&reason);
    if (watch == nullptr) {
      // A libfabric without verbs.
      CHECK_FALSE(reason.empty());
      unsetenv("CINNABAR_PATCHES");
      return;
    }
    CHECK_FALSE(isReadable(*watch));
    for (int i = 0; i < 1500; ++i) tellWatches({.event = i});
    CHECK(isReadable(*watch));
    uint64_t lost = 0;
    auto events = watch->take(&lost);
    CHECK(lost == 1500 - 1024);
    REQUIRE(events.size() == 1024);
    for (int i = 0; i < 1024; ++i) CHECK(events[static_cast<size_t>(i)].event == i);
    CHECK_FALSE(isReadable(*watch));
    CHECK(watch->take(&lost).empty());
    CHECK(lost == 0);

    auto second = ConnectionWatch::open(&reason);
    REQUIRE(second != nullptr);
    watch.reset();
    tellWatches({.event = 9});
    CHECK(second->take(&lost).size() == 1);
    unsetenv("CINNABAR_PATCHES");
  }

  TEST_CASE("nothing is replaced unless the user asks for it") {
    if (!test::haveLibfabric()) return;
    std::string reason;
    CHECK(ConnectionWatch::open(&reason) == nullptr);
    CHECK(reason == "off; CINNABAR_PATCHES=connection-events switches it on");
    setenv("CINNABAR_PATCHES", "connection-events", 1);
    setenv("CINNABAR_NO_PATCHES", "all", 1);
    CHECK(ConnectionWatch::open(&reason) == nullptr);
    unsetenv("CINNABAR_PATCHES");
    unsetenv("CINNABAR_NO_PATCHES");
  }

  TEST_CASE("nothing is replaced where there is nothing of that name") {
    auto nobody = [](const LoadedObject&) { return false; };
    auto everybody = [](const LoadedObject&) { return true; };
    void* instead = reinterpret_cast<void*>(pretend);
    CHECK(replaceInLinkage(nobody, "getppid", instead) == 0);
    CHECK(replaceInLinkage(everybody, "cinnabar_no_such_function", instead) == 0);
  }

  TEST_CASE("an object's calls go elsewhere, and back") {
    auto self = [](const LoadedObject& object) {
      return object.contains(reinterpret_cast<const void*>(pretend));
    };
    pid_t parent = getppid();
    REQUIRE(parent != 1);
    if (replaceInLinkage(self, "getppid", reinterpret_cast<void*>(pretend)) == 0) return;
    CHECK(getppid() == 1);
    pid_t (*there)() = [] { return static_cast<pid_t>(syscall(SYS_getppid)); };
    CHECK(replaceInLinkage(self, "getppid", reinterpret_cast<void*>(there)) > 0);
    CHECK(getppid() == parent);
  }

  TEST_CASE("the kernel answers, or says why not") {
    std::vector<uint8_t> answer;
    int status = askKernel(1, -1, &answer);
    CHECK(status <= 0);
    CHECK((status < 0) == answer.empty());
    CHECK(askKernel(200, -1, &answer) <= 0);
  }
}
