// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include <doctest/doctest.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

#include "fabric/domains.h"
#include "fabric/needs.h"
#include "test/harness.h"

using namespace cinnabar::fabric;

namespace {

std::vector<uint8_t> seenByDomain, seenByEndpoint;

/// A provider that takes keys of four bytes.
int getinfoWithKeys(uint32_t version, const char*, const char*, uint64_t, const fi_info* hints,
                    fi_info** list) {
  const fi_domain_attr& domain = *hints->domain_attr;
  const fi_ep_attr& endpoint = *hints->ep_attr;
  seenByDomain.assign(domain.auth_key, domain.auth_key + domain.auth_key_size);
  seenByEndpoint.assign(endpoint.auth_key, endpoint.auth_key + endpoint.auth_key_size);
  if (domain.auth_key_size != 0 && domain.auth_key_size != 4) return -FI_ENODATA;
  static_cast<void>(version);
  *list = library()->dupinfo(hints);
  (*list)->domain_attr->auth_key_size = 4;
  return 0;
}

}  // namespace

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
    Provider unsleeping{Scheme::opx, "shm", 0, UINT32_MAX};
    CHECK(fabricObstacle(*library(), unsleeping).find("FI_WAIT_FD") != std::string::npos);
    const Provider* tcp = nullptr;
    for (const Provider& provider : providerTable()) {
      bool suiting = provider.scheme == Scheme::tcp && suits(provider, library()->loadedVersion);
      if (tcp == nullptr && suiting) tcp = &provider;
    }
    Provider good{Scheme::opx, tcp->name, 0, UINT32_MAX};
    CHECK(fabricObstacle(*library(), good) == "");
  }

  TEST_CASE("an authorization key goes to the domain and the endpoint") {
    REQUIRE(cinnabar::test::haveLibfabric());
    Library keyed = *library();
    keyed.getinfo = getinfoWithKeys;
    Provider provider{Scheme::cxi, "cxi", 0, UINT32_MAX};
    std::vector<uint8_t> key = {1, 2, 3, 4};
    auto info = getInfo(keyed, {.provider = &provider, .authKey = key});
    REQUIRE(info);
    CHECK(seenByDomain == key);
    CHECK(seenByEndpoint == key);
    CHECK(std::equal(key.begin(), key.end(), (*info)->ep_attr->auth_key));
  }

  TEST_CASE("a key of another length is told so, without the key") {
    REQUIRE(cinnabar::test::haveLibfabric());
    Library keyed = *library();
    keyed.getinfo = getinfoWithKeys;
    Provider provider{Scheme::cxi, "cxi", 0, UINT32_MAX};
    InfoRequest request{.provider = &provider, .authKey = {0x5e, 0xc4}};
    CHECK_FALSE(getInfo(keyed, request));
    CHECK(authKeyObstacle(keyed, request) ==
          "provider cxi takes authorization keys of 4 bytes, this one has 2");
    Provider plain{Scheme::shm, "shm", 0, UINT32_MAX};
    CHECK(authKeyObstacle(*library(), {.provider = &plain, .authKey = {1}}) ==
          "provider shm takes no authorization key");
    CHECK(authKeyObstacle(*library(), {.provider = &plain}) == "");
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
