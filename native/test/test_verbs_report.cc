// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "fabric/fork_safety.h"
#include "fabric/verbs_report.h"

using namespace cinnabar::fabric;

namespace {

/// A machine's files, below a folder that goes with it.
class Machine {
 public:
  Machine() {
    char name[] = "/tmp/cinnabar-machine-XXXXXX";
    root_ = mkdtemp(name);
  }
  ~Machine() { std::filesystem::remove_all(root_); }
  Machine& with(const std::string& path) {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << "x";
    return *this;
  }
  const std::string& root() const { return root_; }

 private:
  std::string root_;
};

bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_SUITE("verbs report") {
  TEST_CASE("each thing that is missing names its remedy, one after the other") {
    Machine machine;
    CHECK(has(deviceObstacle(machine.root()), "rdma link add rxe0"));
    machine.with("/sys/class/infiniband/mlx5_0/node_type");
    CHECK(has(deviceObstacle(machine.root()), "there is mlx5_0"));
    CHECK(has(deviceObstacle(machine.root()), "modprobe ib_uverbs"));
    machine.with("/dev/infiniband/uverbs0");
    CHECK(has(deviceObstacle(machine.root()), "modprobe rdma_ucm"));
    machine.with("/dev/infiniband/rdma_cm");
    CHECK(deviceObstacle(machine.root()) == "");
  }

  TEST_CASE("a device file that may not be opened is named") {
    if (geteuid() == 0) return;  // root may open everything
    Machine machine;
    machine.with("/sys/class/infiniband/mlx5_0/node_type")
        .with("/dev/infiniband/rdma_cm")
        .with("/dev/infiniband/uverbs0");
    std::filesystem::permissions(machine.root() + "/dev/infiniband/uverbs0",
                                 std::filesystem::perms::none);
    CHECK(has(deviceObstacle(machine.root()), "this user may not open /dev/infiniband/uverbs0"));
  }

  TEST_CASE("drivers that are not installed are told") {
    Machine machine;
    CHECK(has(driverObstacle(machine.root()), "apt-get install ibverbs-providers"));
    machine.with("/etc/libibverbs.d/README");
    CHECK(has(driverObstacle(machine.root()), "apt-get install ibverbs-providers"));
    machine.with("/etc/libibverbs.d/mlx5.driver");
    CHECK(driverObstacle(machine.root()) == "");
  }
}

TEST_SUITE("on-demand paging") {
  TEST_CASE("is refused where there is Soft-RoCE and the user wishes for it") {
    Machine adapter, soft;
    adapter.with("/sys/class/infiniband/mlx5_0/fw_ver");
    soft.with("/sys/class/infiniband/mlx5_0/fw_ver").with("/sys/class/infiniband/rxe0/parent");
    unsetenv("FI_VERBS_USE_ODP");
    CHECK(pagingObstacle(soft.root()) == "");
    setenv("FI_VERBS_USE_ODP", "1", 1);
    CHECK(has(pagingObstacle(soft.root()), "Soft-RoCE (rxe0) puts data in wrong places: unset it"));
    CHECK(pagingObstacle(adapter.root()) == "");
    setenv("FI_VERBS_USE_ODP", "no", 1);
    CHECK(pagingObstacle(soft.root()) == "");
    unsetenv("FI_VERBS_USE_ODP");
  }
}

TEST_SUITE("fork safety") {
  TEST_CASE("kernels copy pinned pages since 5.12") {
    for (const char* release : {"5.12.0", "5.15.0-91-generic", "6.1.0-18-amd64", "10.0"})
      CHECK(copiesPinnedPages(release));
    for (const char* release : {"5.11.22", "5.4.0", "4.18.0-372.el8.x86_64", "", "x", "5", "5."})
      CHECK_FALSE(copiesPinnedPages(release));
  }

  TEST_CASE("libibverbs is asked to see to it where the kernel does not, never over the user") {
    for (const char* name : {"RDMAV_FORK_SAFE", "RDMAV_HUGEPAGES_SAFE", "IBV_FORK_SAFE"})
      unsetenv(name);
    keepForksSafe("6.1.0");
    CHECK(getenv("RDMAV_FORK_SAFE") == nullptr);
    keepForksSafe("4.18.0");
    CHECK(std::string(getenv("RDMAV_FORK_SAFE")) == "1");
    CHECK(std::string(getenv("RDMAV_HUGEPAGES_SAFE")) == "1");
    unsetenv("RDMAV_FORK_SAFE");
    setenv("IBV_FORK_SAFE", "1", 1);
    setenv("RDMAV_HUGEPAGES_SAFE", "0", 1);
    keepForksSafe("4.18.0");
    CHECK(getenv("RDMAV_FORK_SAFE") == nullptr);
    CHECK(std::string(getenv("RDMAV_HUGEPAGES_SAFE")) == "0");
    unsetenv("IBV_FORK_SAFE");
    unsetenv("RDMAV_HUGEPAGES_SAFE");
  }
}
