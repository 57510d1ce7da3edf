// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

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

/// Makes a process's only shm port say that the copy of that number is under way, where odd, or
/// over. False if it has no such port.
bool setCopying(pid_t pid, uint32_t number);

std::string toHex(const std::vector<uint8_t>& bytes);
std::vector<uint8_t> fromHex(const std::string& text);

}  // namespace cinnabar::test
