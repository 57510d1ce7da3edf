// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <memory>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "fabric/failure.h"

namespace cinnabar::shm {

/// A port's right to its shm name: an abstract Unix socket, which the kernel lets go of when the
/// process ends, however it ends.
class ShmClaim {
 public:
  /// Binds the socket. "" picks a unique name.
  static fabric::Result<std::unique_ptr<ShmClaim>> take(std::string name);

  const std::string& name() const { return name_; }
  int socket() const { return socket_.get(); }

  /// Lets peers connect. 0 or an errno.
  int publish();

 private:
  ShmClaim(std::string name, base::Fd socket)
      : name_(std::move(name)), socket_(std::move(socket)) {}

  std::string name_;
  base::Fd socket_;
};

/// The abstract socket address of a port's name.
socklen_t socketAddress(std::string_view name, sockaddr_un* into);

}  // namespace cinnabar::shm
