// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "transport/tcp/socket_table.h"

#include <new>

namespace cinnabar::tcp {

Socket* SocketTable::make(int fd, Socket::Stage stage) {
  auto index = static_cast<size_t>(fd);
  if (index >= kChunks * kChunkSockets) return nullptr;
  std::atomic<Socket*>& place = chunks_[index / kChunkSockets];
  if (place.load(std::memory_order_acquire) == nullptr) {
    auto* chunk = new (std::nothrow) Socket[kChunkSockets];
    Socket* expected = nullptr;
    if (chunk == nullptr) return nullptr;
    if (!place.compare_exchange_strong(expected, chunk, std::memory_order_acq_rel)) delete[] chunk;
  }
  Socket* socket = slot(fd);
  drop(*socket);
  socket->stage.store(stage, std::memory_order_release);
  return socket;
}

void SocketTable::drop(Socket& socket) {
  socket.stage.store(Socket::Stage::none, std::memory_order_release);
  socket.watch.store(nullptr, std::memory_order_relaxed);
  socket.isListening = socket.isInbound = socket.isFiltered = socket.hasSaidControl = false;
  socket.number = socket.sinceNs = 0;
  socket.peer = {};
  socket.control = {};
  socket.filter = {};
  socket.keys.clear();
}

}  // namespace cinnabar::tcp
