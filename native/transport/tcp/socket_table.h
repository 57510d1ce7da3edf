// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <netinet/in.h>

#include <array>
#include <atomic>
#include <cstdint>

#include "transport/tcp/stream_filter.h"

namespace cinnabar::tcp {

class SocketWatch;

/// A descriptor that libfabric has made, until it is closed.
///
/// The thread of libfabric's call changes it, and libfabric makes no two calls on one socket at
/// once. Members that other threads read are atomic, or change only under the watch's lock.
struct Socket {
  enum class Stage : uint8_t {
    none,        // not libfabric's
    other,       // no connection: a listener, an epoll set
    connecting,  // connect(2) is under way
    asking,      // our control message has left; the answer is awaited
    accepted,    // theirs is awaited
    streaming,
    bad,  // the stream is broken; the provider gets no more bytes of it
  };

  std::atomic<Stage> stage{Stage::none};
  /// The watch of the port that it belongs to; nullptr while the port is unknown.
  std::atomic<SocketWatch*> watch{nullptr};
  bool isListening = false;
  bool isInbound = false;
  bool isFiltered = false;
  bool hasSaidControl = false;  // our own control message has left
  uint64_t number = 0;          // connections are numbered as they are made
  uint64_t sinceNs = 0;
  /// The number of the message that has come in part (StreamFilter), and since when; 0 without one.
  uint64_t held = 0;
  uint64_t heldSinceNs = 0;
  /// Where the other side listens: the address of the connect, or that of the control message.
  sockaddr_in6 peer{};
  ControlMessage control;
  StreamFilter filter;
  ConnectionKeys keys;
};

/// The sockets of the process by their descriptors. Looking one up costs two loads.
class SocketTable {
 public:
  /// nullptr for a descriptor that libfabric has not made.
  static Socket* find(int fd) {
    Socket* socket = slot(fd);
    if (socket == nullptr) return nullptr;
    return socket->stage.load(std::memory_order_relaxed) == Socket::Stage::none ? nullptr : socket;
  }
  /// A fresh entry; nullptr if the table ends before the descriptor, or there is no memory.
  static Socket* make(int fd, Socket::Stage stage);
  /// Call it before the descriptor is closed: the kernel may reuse its number at once.
  static void drop(Socket& socket);
  /// Calls `visit(fd, socket)` for every socket.
  template <typename F>
  static void each(F&& visit) {
    for (size_t i = 0; i < kChunks; ++i) {
      Socket* chunk = chunks_[i].load(std::memory_order_acquire);
      for (size_t j = 0; chunk != nullptr && j < kChunkSockets; ++j) {
        if (chunk[j].stage.load(std::memory_order_acquire) != Socket::Stage::none)
          visit(static_cast<int>(i * kChunkSockets + j), chunk[j]);
      }
    }
  }

 private:
  static constexpr size_t kChunkSockets = 256;
  static constexpr size_t kChunks = 4096;  // 2^20 descriptors

  static Socket* slot(int fd) {
    auto index = static_cast<size_t>(fd);
    if (index >= kChunks * kChunkSockets) return nullptr;
    Socket* chunk = chunks_[index / kChunkSockets].load(std::memory_order_acquire);
    return chunk == nullptr ? nullptr : chunk + index % kChunkSockets;
  }

  /// Never freed: libfabric's threads may outlive every destructor.
  static inline std::array<std::atomic<Socket*>, kChunks> chunks_{};
};

}  // namespace cinnabar::tcp
