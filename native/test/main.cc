// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>
#include <signal.h>

#include "test/child.h"
#include "test/harness.h"

namespace cinnabar::test {

bool haveLibfabric() {
  const char* path = getenv("CINNABAR_LIBFABRIC");
  return fabric::loadLibrary({path != nullptr ? path : "libfabric.so.1"}).loaded;
}

}  // namespace cinnabar::test

int main(int argc, char** argv) {
  signal(SIGPIPE, SIG_IGN);
  cinnabar::fabric::prepareEnvironment();
  int part = cinnabar::test::playPart(argc, argv);
  if (part >= 0) return part;
  doctest::Context context(argc, argv);
  return context.run();
}
