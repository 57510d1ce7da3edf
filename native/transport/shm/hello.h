// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/fd.h"

namespace cinnabar::shm {

// What two shm ports say to each other over their Unix socket (SOCK_SEQPACKET: a message each):
//
//   connecting side          accepting side
//   hello, 3 descriptors ->
//                        <-  hello, 3 descriptors
//
// or, where the accepting side has no descriptor left, or as many neighbours as it may have,
//
//                        <-  crowded, or full
//
// or, where the two lay out what they share in different ways,
//
//                        <-  refused
//
// A side posts as soon as it has the other's hello: the ring to write to came along. After this the
// socket carries rings alone (doorbell.h), a byte each; its end is the end of the peer.

constexpr size_t kPortNameMax = 64;

enum class HelloKind : uint32_t { hello = 1, full = 2, refused = 3, crowded = 4 };

/// The one message format; fixed size, both sides are of one machine. The first three words stay as
/// they are in every version.
struct HelloMessage {
  static constexpr uint32_t kMagic = 0x52424e43;  // "CNBR"
  /// Numbers this message and all that two ports share: doorbell, keys, rings and their records.
  static constexpr uint32_t kVersion = 5;
  static constexpr size_t kStableBytes = 3 * sizeof(uint32_t);

  uint32_t magic = kMagic;
  uint32_t version = kVersion;
  uint32_t kind = 0;
  /// What one of the sender's receive slots holds. A longer message has no place there.
  uint32_t slotBytes = 0;
  /// The capacity of the ring that the sender reads.
  uint64_t ringBytes = 0;
  /// A number and where it lies in the sender's memory: a peer that can read it there can copy to
  /// and from the process directly.
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

/// Takes no descriptors from the socket any more, where the kernel can refuse them (Linux 6.16). To
/// close one that a peer made slow to close would hold this thread.
void refuseDescriptors(int socket);

/// Reads one message without blocking. Every descriptor that came along is owned or closed,
/// whatever the outcome.
Received receiveHello(int socket);

}  // namespace cinnabar::shm
