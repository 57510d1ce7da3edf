// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace cinnabar::fabric {

/// Deviations of providers of some libfabric versions from libfabric's pages. Each is named by its
/// fault and described by the remedy here.
enum class Quirk {
  /// Wait for the descriptor inside the queue's, the one that watches the sockets.
  innerWaitFd,
  /// Read the queue empty before the endpoint is closed.
  drainBeforeClose,
  /// Send with a completion, never inject.
  losesInjected,
  /// Register message buffers without rights for peers.
  copiesMessages,
  /// Keep an address without a user for some seconds.
  endsConnections,
  /// Leave a connection to libfabric after a failure, and post no operation to its peer until it is
  /// gone.
  crashesOnDisconnect,
  /// Notify the target of a write by a message.
  hidesWrites,
  /// Have no more peers than FI_UNIVERSE_SIZE says.
  sizedForPeers,
  /// Follow each write with an empty read on the same connection, and wait for both.
  completesOnDeparture,
  /// Replace functions of libc by ours (transport/tcp/socket_calls.h).
  leavesSockets,
  /// Compare incoming bytes with what an honest peer may send (transport/tcp/stream_filter.h).
  trustsStreams,
  /// Cut extents of a few bytes where they cross a page of their source.
  tearsShortExtents,
  /// Look at the results of libfabric's calls of the connection manager
  /// (transport/verbs/refusals.h).
  hidesRefusals,
  /// Hide the kernel symbols from it (fabric/kernel_symbols.h).
  readsKernelSymbols,
};

struct QuirkEntry {
  Quirk quirk;
  const char* provider;
  uint32_t since;   // the first libfabric version with the quirk
  uint32_t before;  // the first one without it
  const char* symptom;
  const char* reason;
  const char* fabric = nullptr;  // the only network with the quirk, by libfabric's name for it
};

/// A variable of libfabric that is set unless the user has set it.
struct Setting {
  const char* variable;
  const char* value;
  const char* symptom;  // without it
  const char* reason;
};

constexpr uint32_t kAnyVersion = 0;
constexpr uint32_t kEver = UINT32_MAX;

/// Both tables hold observed facts, no guesses; docs/design/verbs.md and libfabric.md describe the
/// observations.
std::span<const QuirkEntry> quirkTable();
std::span<const Setting> settingTable();

/// `fabric` is the provider's name for the network of the endpoint.
bool hasQuirk(Quirk quirk, std::string_view provider, uint32_t version,
              std::string_view fabric = "");

/// Sets the variables of the table. libfabric reads its variables once, in its first fi_getinfo.
void applySettings();

}  // namespace cinnabar::fabric
