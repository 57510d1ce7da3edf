// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "transport/shm/doorbell.h"
#include "transport/shm/stale_lock_reaper.h"

namespace cinnabar::test {

/// A copy of this program in another process, playing a part; they talk in lines over pipes.
class Child {
 public:
  explicit Child(const std::vector<std::string>& arguments);
  ~Child();

  void tell(const std::string& line);
  /// The next line the child says; "" at its end or after the deadline.
  std::string hear();
  /// Whether `hear` would return at once.
  bool hasSaid();
  void kill(int signal);
  pid_t pid() const { return pid_; }
  /// Waits for the end; the status as waitpid(2) gives it.
  int wait();

 private:
  pid_t pid_ = 0;
  int in_ = -1;
  int out_ = -1;
  std::string buffer_;
};

/// Runs a child's part if the program was started as one; -1 otherwise.
int playPart(int argc, char** argv);

/// Makes copies between processes fail where this one is to make them (prctl(2), PR_SET_SECCOMP).
/// For good.
bool forbidCopies();

/// The doorbell page of a process's only shm port, as its neighbours map it; nullptr if it has
/// none.
shm::DoorbellPage* doorbellPageOf(pid_t pid);

/// The head of some shm region of a process; nullptr if it has none that this libfabric's layout
/// fits.
std::unique_ptr<shm::RegionHead> regionOf(pid_t pid);

std::string toHex(const std::vector<uint8_t>& bytes);
std::vector<uint8_t> fromHex(const std::string& text);

}  // namespace cinnabar::test
