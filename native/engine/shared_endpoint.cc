// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "engine/shared_endpoint.h"

#include <map>

namespace cinnabar::engine {
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
  if (!fabricName.empty()) {
    std::lock_guard lock(registry().mutex);
    registry().endpoints[fabricName] = shared;
  }
  return shared;
}

std::shared_ptr<SharedEndpoint> SharedEndpoint::find(const std::string& fabricName) {
  std::lock_guard lock(registry().mutex);
  auto found = registry().endpoints.find(fabricName);
  return found == registry().endpoints.end() ? nullptr : found->second.lock();
}

void SharedEndpoint::retire() {
  if (!fabricName_.empty()) {
    std::lock_guard lock(registry().mutex);
    registry().endpoints.erase(fabricName_);
  }
  std::lock_guard lock(mutex_);
  retired_ = true;
}

SharedEndpoint::~SharedEndpoint() { retire(); }

}  // namespace cinnabar::engine
