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

/// A port's right to its shm name: an abstract Unix socket, which the kernel frees at the end of
/// the process, even a killed one.
///
/// A name that is a path is a socket in the file system instead, so that processes in several
/// network namespaces meet there. A lock on the file PATH.lock shows that its owner lives. The
/// socket of a killed owner is replaced.
class ShmClaim {
 public:
  /// Binds the socket. "" picks a unique name.
  static fabric::Result<std::unique_ptr<ShmClaim>> take(std::string name);
  ~ShmClaim();

  const std::string& name() const { return name_; }
  int socket() const { return socket_.get(); }

  /// Lets peers connect. 0 or an errno.
  int publish();

 private:
  ShmClaim(std::string name, base::Fd lock, base::Fd socket)
      : name_(std::move(name)), lock_(std::move(lock)), socket_(std::move(socket)) {}

  std::string name_;
  base::Fd lock_;  // of a path
  base::Fd socket_;
};

/// The socket address of a port's name.
socklen_t socketAddress(std::string_view name, sockaddr_un* into);

}  // namespace cinnabar::shm
