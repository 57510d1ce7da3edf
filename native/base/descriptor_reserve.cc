// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "base/descriptor_reserve.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <mutex>

#include "base/fd.h"

namespace cinnabar::base {
namespace {

// In one call, so that a flood cannot hold up the caller.
constexpr unsigned kMostTurnedAway = 64;

Fd openNothing() { return Fd(open("/dev/null", O_RDONLY | O_CLOEXEC)); }

struct Reserve {
  std::mutex mutex;
  Fd fd;

  void fill() {
    if (!fd) fd = openNothing();
  }
};

/// Never destroyed: threads of libraries may outlive every destructor.
Reserve& reserve() {
  static auto* one = new Reserve();
  return *one;
}

}  // namespace

void reserveDescriptor() {
  Reserve& held = reserve();
  std::lock_guard lock(held.mutex);
  held.fill();
}

unsigned turnAway(int listener, const std::function<void(int socket)>& say) {
  Reserve& held = reserve();
  std::lock_guard lock(held.mutex);
  unsigned turned = 0;
  for (; turned < kMostTurnedAway; ++turned) {
    held.fd.reset();
    Fd socket(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) break;
    say(socket.get());
  }
  held.fill();
  // Another thread took the reserved descriptor. Until one is free, no connection can be turned
  // away and the listener stays readable. The pause keeps the caller from a busy loop.
  if (!held.fd) poll(nullptr, 0, 1);
  return turned;
}

bool lacksDescriptors(int code) { return code == EMFILE || code == ENFILE; }

bool lacksDescriptors() { return !openNothing() && lacksDescriptors(errno); }

}  // namespace cinnabar::base
