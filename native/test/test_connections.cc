// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include <doctest/doctest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <vector>

#include "fabric/linkage.h"
#include "transport/verbs/kernel.h"

using namespace cinnabar;
using namespace cinnabar::verbs;
using fabric::LoadedObject;
using fabric::replaceInLinkage;

namespace {

pid_t pretend() { return 1; }

}  // namespace

TEST_SUITE("connections") {
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
