// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include <doctest/doctest.h>
#include <rdma/fabric.h>

#include <cstdlib>
#include <string>

#include "fabric/quirks.h"

using namespace cinnabar::fabric;

TEST_SUITE("quirks") {
  TEST_CASE("belong to a provider, a kind of network and a range of versions") {
    CHECK(hasQuirk(Quirk::innerWaitFd, "net", FI_VERSION(1, 17)));
    CHECK_FALSE(hasQuirk(Quirk::innerWaitFd, "net", FI_VERSION(1, 18)));
    CHECK_FALSE(hasQuirk(Quirk::innerWaitFd, "tcp", FI_VERSION(2, 1)));
    CHECK(hasQuirk(Quirk::drainBeforeClose, "verbs;ofi_rxm", FI_VERSION(2, 6)));
    CHECK(hasQuirk(Quirk::completesOnDeparture, "verbs;ofi_rxm", FI_VERSION(1, 17),
                   "Ethernet-iWARP"));
    CHECK_FALSE(hasQuirk(Quirk::completesOnDeparture, "verbs;ofi_rxm", FI_VERSION(1, 17),
                         "IB-0xfe80000000000000"));
    CHECK_FALSE(hasQuirk(Quirk::drainBeforeClose, "net", FI_VERSION(1, 17)));
    CHECK(hasQuirk(Quirk::tearsShortExtents, "verbs;ofi_rxm", FI_VERSION(2, 1), "Ethernet-iWARP"));
    CHECK_FALSE(hasQuirk(Quirk::tearsShortExtents, "verbs;ofi_rxm", FI_VERSION(2, 1),
                         "IB-0xfe80000000000000"));
    CHECK(hasQuirk(Quirk::crashesOnDisconnect, "verbs;ofi_rxm", FI_VERSION(2, 1)));
    CHECK_FALSE(hasQuirk(Quirk::crashesOnDisconnect, "verbs;ofi_rxm", FI_VERSION(1, 17)));
  }

  TEST_CASE("say what goes wrong and why") {
    for (const QuirkEntry& entry : quirkTable()) {
      CHECK(entry.since < entry.before);
      CHECK_FALSE(std::string(entry.symptom).empty());
      CHECK_FALSE(std::string(entry.reason).empty());
    }
    for (const Setting& setting : settingTable()) {
      CHECK(std::string(setting.variable).starts_with("FI_"));
      CHECK_FALSE(std::string(setting.symptom).empty());
      CHECK_FALSE(std::string(setting.reason).empty());
    }
  }

  TEST_CASE("set libfabric's variables, but never over the user") {
    setenv("FI_UNIVERSE_SIZE", "5", 1);
    unsetenv("FI_MR_CACHE_MAX_COUNT");
    applySettings();
    CHECK(std::string(getenv("FI_UNIVERSE_SIZE")) == "5");
    CHECK(std::string(getenv("FI_MR_CACHE_MAX_COUNT")) == "0");
    unsetenv("FI_UNIVERSE_SIZE");
  }

  TEST_CASE("leave on-demand paging to the user: the one device it was tried on loses data") {
    unsetenv("FI_VERBS_USE_ODP");
    applySettings();
    CHECK(getenv("FI_VERBS_USE_ODP") == nullptr);
    setenv("FI_VERBS_USE_ODP", "1", 1);
    applySettings();
    CHECK(std::string(getenv("FI_VERBS_USE_ODP")) == "1");
    unsetenv("FI_VERBS_USE_ODP");
  }
}
