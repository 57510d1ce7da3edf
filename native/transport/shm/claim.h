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

/// A port's right to its shm name.
///
/// The name is held by an abstract Unix socket, which the kernel lets go of when the process dies,
/// however it dies. The provider's file in /dev/shm is called `cnbr~<uid>~<name>~<16 hex digits>`:
/// the digits are new for every port, since the provider keeps mappings of closed endpoints by file
/// name. The file is locked (flock) as long as the port lives:
///   - the owner holds it shared, and exclusively while it removes the file;
///   - a peer holds it shared while it maps the file, so that the file cannot vanish in between;
///   - a sweeper removes a file only while it holds the name itself and has the lock exclusively.
class ShmClaim {
 public:
  /// Binds the socket and removes what dead owners left behind. "" picks a unique name.
  static fabric::Result<std::unique_ptr<ShmClaim>> take(std::string name);
  ~ShmClaim();

  const std::string& name() const { return name_; }
  const std::string& fabricName() const { return fabricName_; }
  int socket() const { return socket_.get(); }
  /// Our region's file, from `publish` on.
  int regionFile() const { return lock_.get(); }

  /// Locks the file that the provider has made by now, and lets peers connect. 0 or an errno.
  int publish();
  /// Removes the file and gives the name back. Idempotent.
  void release();

 private:
  ShmClaim(std::string name, base::Fd socket);

  std::string name_;
  std::string fabricName_;
  base::Fd socket_;
  base::Fd lock_;
};

/// The abstract socket address of a port's name.
socklen_t socketAddress(std::string_view name, sockaddr_un* into);

/// Keeps a peer's file from being removed while it is mapped; empty if it is gone, or is no file of
/// that peer.
base::Fd holdRegionFile(std::string_view name, std::string_view fabricName);

/// Removes the files of our naming scheme and our user whose owner is dead. Returns how many.
int sweepShmFiles();

}  // namespace cinnabar::shm
