// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "transport/shm/shared_endpoint.h"

#include <map>

namespace cinnabar::shm {
namespace {

struct Registry {
  std::mutex mutex;
  std::map<std::string, std::weak_ptr<SharedEndpoint>> endpoints;
};

Registry& registry() {
  static Registry* instance = new Registry;  // outlives every thread and exit handler
  return *instance;
}

}  // namespace

std::shared_ptr<SharedEndpoint> SharedEndpoint::publish(
    std::string fabricName, std::unique_ptr<fabric::Endpoint> endpoint) {
  auto shared = std::make_shared<SharedEndpoint>(fabricName, std::move(endpoint));
  std::lock_guard lock(registry().mutex);
  registry().endpoints[fabricName] = shared;
  return shared;
}

EndpointLease SharedEndpoint::lease(const std::string& fabricName) {
  // Outlives the lock: the last holder takes the lock again when it lets go.
  std::shared_ptr<SharedEndpoint> found;
  std::lock_guard lock(registry().mutex);
  auto entry = registry().endpoints.find(fabricName);
  if (entry != registry().endpoints.end()) found = entry->second.lock();
  return found && found->takeLease() ? EndpointLease(found) : EndpointLease();
}

void SharedEndpoint::retire() {
  {
    std::lock_guard lock(registry().mutex);
    registry().endpoints.erase(fabricName_);
  }
  std::lock_guard lock(mutex_);
  retired_ = true;
}

bool SharedEndpoint::isLeased() {
  std::lock_guard lock(mutex_);
  return leases_ > 0;
}

bool SharedEndpoint::takeLease() {
  std::lock_guard lock(mutex_);
  if (!retired_) ++leases_;
  return !retired_;
}

void SharedEndpoint::endLease() {
  std::lock_guard lock(mutex_);
  --leases_;
}

SharedEndpoint::~SharedEndpoint() { retire(); }

}  // namespace cinnabar::shm
