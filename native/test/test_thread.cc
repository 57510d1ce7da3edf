// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include <doctest/doctest.h>
#include <pthread.h>
#include <signal.h>

#include <atomic>

#include "base/thread.h"
#include "test/child.h"
#include "test/harness.h"

using namespace cinnabar;
using namespace cinnabar::test;
using base::Thread;

namespace {

/// No thread can be had while this lives: none has room for so long a stack.
class NoThreads {
 public:
  NoThreads() {
    pthread_attr_t longest;
    pthread_getattr_default_np(&before_);
    pthread_attr_init(&longest);
    pthread_attr_setstacksize(&longest, size_t{1} << 50);
    pthread_setattr_default_np(&longest);
    pthread_attr_destroy(&longest);
  }
  ~NoThreads() {
    pthread_setattr_default_np(&before_);
    pthread_attr_destroy(&before_);
  }

 private:
  pthread_attr_t before_;
};

}  // namespace

TEST_SUITE("thread") {
  TEST_CASE("runs to its end and takes no signals") {
    std::atomic<bool> ran = false, blocked = false;
    Thread thread;
    CHECK_FALSE(thread.runs());
    thread.join();
    REQUIRE(thread.start([&] {
      sigset_t mask;
      pthread_sigmask(SIG_SETMASK, nullptr, &mask);
      blocked = sigismember(&mask, SIGTERM) == 1;
      ran = true;
    }));
    thread.join();
    CHECK(ran);
    CHECK(blocked);
    CHECK_FALSE(thread.runs());
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    CHECK(sigismember(&mask, SIGTERM) == 0);
  }

  TEST_CASE("reports that no thread can start") {
    NoThreads none;
    Thread thread;
    CHECK_FALSE(thread.start([] {}));
    CHECK_FALSE(thread.runs());
    thread.join();
  }

  TEST_CASE("a port that gets none meets its peers all the same") {
    REQUIRE(haveLibfabric());
    NoThreads none;
    Child peer({"--part", "echo", "shm", ""});
    std::string line = peer.hear();
    TestPort here(fabric::Scheme::shm);
    REQUIRE(here.open());
    auto address = fromHex(line.substr(0, line.find(' ')));
    int to = here.port->admit(address.data(), address.size());
    REQUIRE(to >= 0);
    fabric::RawAddress mine = here.port->address();
    memcpy(here.slot(0), mine.data(), mine.size());
    here.port->send(static_cast<uint32_t>(to), 0, mine.size());
    here.sendPattern(to, 1, 100, 1);
    CHECK(eventually({&here}, [&] { return here.messages.size() == 1; }));
  }
}
