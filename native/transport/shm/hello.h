// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/fd.h"

namespace cinnabar::shm {

// The messages of two shm ports over their Unix socket (SOCK_SEQPACKET: a message each):
//
//   connecting side          accepting side
//   hello, 3 descriptors ->
//                        <-  hello, 3 descriptors
//
// or, if the accepting side has no descriptor left, or its most neighbours already,
//
//                        <-  crowded, or full
//
// or, if the two have different layouts of the shared memory,
//
//                        <-  refused
//
// A side posts as soon as it has the other's hello, which carries the ring to write to. After this
// the socket carries only rings (doorbell.h), a byte each; its end is the end of the peer.

constexpr size_t kPortNameMax = 64;

enum class HelloKind : uint32_t { hello = 1, full = 2, refused = 3, crowded = 4 };

/// The one message format; fixed size, both sides are of one machine. The first three words are the
/// same in every version.
struct HelloMessage {
  static constexpr uint32_t kMagic = 0x52424e43;  // "CNBR"
  /// Numbers this message and all that two ports share: doorbell, keys, rings and their records.
  static constexpr uint32_t kVersion = 5;
  static constexpr size_t kStableBytes = 3 * sizeof(uint32_t);

  uint32_t magic = kMagic;
  uint32_t version = kVersion;
  uint32_t kind = 0;
  /// The capacity of the sender's receive slots. A longer message does not fit.
  uint32_t slotBytes = 0;
  /// The capacity of the ring that the sender reads.
  uint64_t ringBytes = 0;
  /// A number and its address in the sender's memory. A peer that can read it there can copy to and
  /// from the process directly.
  uint64_t proof = 0;
  uint64_t proofAt = 0;
  char name[kPortNameMax + 1] = {};

  bool isSound() const;
};

struct Received {
  enum class Outcome { nothing, message, otherVersion, closed, garbage };
  Outcome outcome = Outcome::nothing;
  /// Where the version differs, only the stable words are set.
  HelloMessage message;
  base::Fd page;
  base::Fd keys;
  base::Fd ring;
};

/// The descriptors of a hello; no other message has any: the doorbell's page, the key table, and
/// the ring that the receiver of the hello writes to.
struct HelloDescriptors {
  int page = -1;
  int keys = -1;
  int ring = -1;
};

/// 0 or an errno.
int sendHello(int socket, const HelloMessage& message, const HelloDescriptors& along = {});

/// Makes the socket refuse descriptors, if the kernel can (Linux 6.16). A peer could send a
/// descriptor that is slow to close, which would block this thread.
void refuseDescriptors(int socket);

/// Reads one message without blocking. Every descriptor that came along is owned or closed,
/// whatever the outcome.
Received receiveHello(int socket);

}  // namespace cinnabar::shm
