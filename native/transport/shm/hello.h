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
//                            (maps the peer's region)
//                        <-  hello, 3 descriptors
//   (maps the peer's region)
//   mapped               ->
//
// or, where the accepting side has no descriptor left,
//
//                        <-  crowded
//
// or, where the two run different libfabrics,
//
//   hello, 3 descriptors ->
//                        <-  refused
//
// because the layout of a region differs between versions, and mapping another's crashes.
//
// A side posts to the other's queue only after it knows that the other has mapped its region: the
// provider introduces itself in that queue by name, and a receiver that cannot open the name any
// more (the sender was quick to close) reads through a null pointer. After this the socket stays
// open and silent; its end is the end of the peer.

constexpr size_t kFabricNameMax = 160;
constexpr size_t kPortNameMax = 64;

enum class HelloKind : uint32_t { hello = 1, mapped = 2, refused = 3, crowded = 4 };

/// The one message format; fixed size, both sides are of one machine.
struct HelloMessage {
  static constexpr uint32_t kMagic = 0x52424e43;  // "CNBR"
  static constexpr uint32_t kVersion = 3;

  uint32_t magic = kMagic;
  uint32_t version = kVersion;
  uint32_t kind = 0;
  /// What the receiver of this message puts into the fragments it sends back, so that they can be
  /// told apart.
  uint32_t senderId = 0;
  /// What one of the sender's receive slots holds; a larger piece would be cut off.
  uint32_t slotBytes = 0;
  /// The version of the sender's libfabric (FI_VERSION).
  uint32_t libfabric = 0;
  /// A number and where it lies in the sender's memory: a peer that can read it there can copy to
  /// and from the process directly.
  uint64_t proof = 0;
  uint64_t proofAt = 0;
  char name[kPortNameMax + 1] = {};
  char fabricName[kFabricNameMax + 1] = {};

  bool isSound() const;
};

struct Received {
  enum class Outcome { nothing, message, closed, garbage };
  Outcome outcome = Outcome::nothing;
  HelloMessage message;
  base::Fd page;
  base::Fd event;
  base::Fd keys;
};

/// What goes along with a hello, and with nothing else: the doorbell's page and eventfd, the key
/// table.
struct HelloDescriptors {
  int page = -1;
  int event = -1;
  int keys = -1;
};

/// 0 or an errno.
int sendHello(int socket, const HelloMessage& message, const HelloDescriptors& along = {});

/// Reads one message without blocking. Every descriptor that came along is owned or closed,
/// whatever the outcome.
Received receiveHello(int socket);

}  // namespace cinnabar::shm
