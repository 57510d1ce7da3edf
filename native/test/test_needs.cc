// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include <doctest/doctest.h>

#include "fabric/domains.h"
#include "fabric/needs.h"
#include "test/harness.h"

using namespace cinnabar::fabric;

TEST_SUITE("needs") {
  TEST_CASE("a provider that this libfabric has not is told from one without a device") {
    REQUIRE(cinnabar::test::haveLibfabric());
    Provider absent{Scheme::efa, "nosuch", 0, UINT32_MAX};
    CHECK(fabricObstacle(*library(), absent).find("has no provider nosuch") != std::string::npos);
  }

  TEST_CASE("what is missing is named, and only that") {
    REQUIRE(cinnabar::test::haveLibfabric());
    Provider datagrams{Scheme::opx, "udp", 0, UINT32_MAX};
    std::string reason = fabricObstacle(*library(), datagrams);
    // A libfabric may be built without it.
    if (reason.find("has no provider") == std::string::npos) {
      CHECK(reason.find("FI_EP_RDM") != std::string::npos);
      CHECK(reason.find("FI_RMA") != std::string::npos);
      CHECK(reason.find("FI_MSG") == std::string::npos);
    }
    // Without FI_WAIT_FD a port is polled.
    Provider unsleeping{Scheme::opx, "shm", 0, UINT32_MAX};
    CHECK(fabricObstacle(*library(), unsleeping) == "");
    const Provider* tcp = nullptr;
    for (const Provider& provider : providerTable()) {
      bool suiting = provider.scheme == Scheme::tcp && suits(provider, library()->loadedVersion);
      if (tcp == nullptr && suiting) tcp = &provider;
    }
    Provider good{Scheme::opx, tcp->name, 0, UINT32_MAX};
    CHECK(fabricObstacle(*library(), good) == "");
  }

  TEST_CASE("domains tell where a provider can be opened") {
    REQUIRE(cinnabar::test::haveLibfabric());
    size_t loopbacks = 0;
    for (const Provider& provider : providerTable()) {
      if (provider.scheme != Scheme::tcp || !suits(provider, library()->loadedVersion)) continue;
      for (const DomainReport& domain : domainsOf(*library(), provider)) {
        CHECK_FALSE(domain.domain.empty());
        if (domain.address == "127.0.0.1") ++loopbacks;
      }
    }
    CHECK(loopbacks > 0);
    Provider absent{Scheme::tcp, "nosuch", 0, UINT32_MAX};
    CHECK(domainsOf(*library(), absent).empty());
  }
}
