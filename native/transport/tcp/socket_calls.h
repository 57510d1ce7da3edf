// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

namespace cinnabar::tcp {

/// Replaces the functions by which libfabric makes and uses sockets by ours: socket, accept,
/// connect, recv, send and some more (fabric/linkage.h). Once for the process, before its first tcp
/// endpoint. Each function makes the call that it replaces, and
///
/// - makes every descriptor close-on-exec in the call that creates it, so that no child process has
///   it, whatever thread starts one;
/// - reports to the port the peers that its connections cannot reach (SocketWatch);
/// - turns connections away when the process has no descriptor left, which the provider would
///   leave in the listener's queue, and look at again and again;
/// - keeps from the provider what it must not trust (StreamFilter).
///
/// True if they are in place: the patch is switched on, and this machine's tables are known.
bool watchSockets();

/// While one lives, data that its thread sends may wait in the kernel for more data (MSG_MORE).
/// Many small sends then leave as few large ones, and wake the other side less often. Call
/// `sendWhatWaits` after them.
class MoreFollows {
 public:
  MoreFollows();
  ~MoreFollows();
  MoreFollows(const MoreFollows&) = delete;
  MoreFollows& operator=(const MoreFollows&) = delete;
};

/// Sends the data that wait for more.
void sendWhatWaits();

}  // namespace cinnabar::tcp
