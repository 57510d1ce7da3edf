// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include <doctest/doctest.h>

#include <cstdlib>

#include "fabric/info.h"
#include "fabric/library.h"
#include "test/child.h"
#include "test/harness.h"

using namespace cinnabar::fabric;

TEST_SUITE("library") {
  TEST_CASE("a missing library is reported with the linker's words") {
    Library found;
    std::string reason = openLibrary("/nonexistent/libfabric.so.1", &found);
    CHECK(reason.find("/nonexistent/libfabric.so.1") != std::string::npos);
  }

  TEST_CASE("a library that is no libfabric is refused") {
    Library found;
    CHECK(openLibrary("libm.so.6", &found).find("fi_version") != std::string::npos);
  }

  TEST_CASE("a file that is no library is refused") {
    Library found;
    CHECK(openLibrary("/proc/self/maps", &found) != "");
  }

  TEST_CASE("every attempt is kept, and the first success wins and stays") {
    LoadReport report = loadLibrary({"/nonexistent/a.so", "libfabric.so.1", "/nonexistent/b.so"});
    REQUIRE(report.loaded);
    LoadReport again = loadLibrary({"/nonexistent/c.so"});
    CHECK(again.loaded);
    CHECK(again.path == report.path);
    // The file, not the name that the linker was asked for.
    CHECK(report.path.front() == '/');
    CHECK(report.path.find("libfabric.so") != std::string::npos);
    CHECK(again.version == library()->version());
  }

  TEST_CASE("the environment has our defaults before libfabric is loaded, and loading sets none") {
    REQUIRE(cinnabar::test::haveLibfabric());
    CHECK(std::string(getenv("FI_MR_CACHE_MAX_COUNT")) == "0");
    unsetenv("FI_MR_CACHE_MAX_COUNT");
    Library found;
    CHECK(openLibrary("libfabric.so.1", &found) == "");
    CHECK(getenv("FI_MR_CACHE_MAX_COUNT") == nullptr);
    setenv("FI_MR_CACHE_MAX_COUNT", "0", 1);
  }

  TEST_CASE("loading, probing and opening leave the signals alone") {
    // In another process, since the test framework has handlers of its own and has loaded the
    // library long ago.
    cinnabar::test::Child child({"--part", "signals", "shm"});
    CHECK(child.hear() == "the same");
  }

  TEST_CASE("the first look at providers reads no kernel symbols") {
    // In a process that has not looked yet.
    cinnabar::test::Child child({"--part", "first-look", "tcp"});
    std::string said = child.hear();
    // That provider has a file of its own, with calls of its own.
    if (said.find("verbs apart") != std::string::npos) return;
    // /proc/kallsyms alone has some 10 MB.
    CHECK(std::stoul(said) < 4'000'000);
  }

  TEST_CASE("a provider that does not suit says why") {
    REQUIRE(cinnabar::test::haveLibfabric());
    Provider future{Scheme::tcp, "tcp", FI_VERSION(99, 0), UINT32_MAX};
    CHECK(reasonAgainst(*library(), future).find("not the choice") != std::string::npos);
    Provider absent{Scheme::tcp, "nosuch", 0, UINT32_MAX};
    CHECK(reasonAgainst(*library(), absent).find("fi_getinfo") != std::string::npos);
  }
}
