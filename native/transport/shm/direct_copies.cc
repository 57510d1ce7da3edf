// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "transport/shm/direct_copies.h"

#include <poll.h>
#include <rdma/fi_errno.h>

#include <algorithm>
#include <cerrno>

#include "base/clock.h"
#include "transport/shm/process_memory.h"

namespace cinnabar::shm {

using transport::Ended;
using transport::Extent;
using transport::kMostExtents;
using transport::Operation;
using transport::RegionTable;

namespace {

// Direct copies share the thread with all other work. Pieces have at most kCopyBytes. A turn lasts
// from the end of one call of progress to the end of the next. After so long on copies it begins no
// further piece. Memory that is touched for the first time takes ten times as long, so pieces
// shrink while they are slow. docs/design/bulk.md has the figures.
constexpr uint64_t kLeastPiece = 16 << 10;
constexpr uint64_t kTurnNs = 120'000;

bool hasEnded(int socket) {
  pollfd watched{socket, POLLRDHUP, 0};
  return poll(&watched, 1, 0) > 0 && (watched.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

}  // namespace

void DirectCopies::advance(const RegionTable& regions, std::vector<Ended>& over) {
  if (copies_.empty() || spentNs_ >= kTurnNs) return;
  for (uint64_t now = base::nowNs(); spentNs_ < kTurnNs && !copies_.empty();) {
    Operation* operation = copies_.pop();
    int code = copyPiece(*operation, regions);
    if (code == 0 && operation->done < operation->bytes) {
      copies_.push(operation);
    } else {
      over.push_back({operation, static_cast<uint32_t>(code)});
    }
    uint64_t tookNs = base::nowNs() - now;
    if (tookNs > kTurnNs) slowdown_ = std::min(slowdown_ * 2, kCopyBytes / kLeastPiece);
    if (tookNs < kTurnNs / 2 && slowdown_ > 1) slowdown_ /= 2;
    spentNs_ += tookNs;
    now += tookNs;
  }
}

/// Copies the next piece: 0 or an error.
int DirectCopies::copyPiece(Operation& operation, const RegionTable& regions) {
  auto& neighbour = static_cast<Neighbour&>(*operation.peer);
  // The process number may belong to another process once the peer is gone.
  if (neighbour.isGone() || hasEnded(neighbour.socket.get())) return ECONNABORTED;
  int code = copyRuns(operation, neighbour, regions);
  return code == ESRCH ? ECONNABORTED : code;
}

/// Copies as many extents as make a piece, in one system call. Stops in front of an extent without
/// a right.
int DirectCopies::copyRuns(Operation& operation, Neighbour& neighbour, const RegionTable& regions) {
  iovec local[kMostExtents];
  iovec remote[kMostExtents];
  size_t count = 0;
  uint64_t left = kCopyBytes / slowdown_;
  KeyRange range;
  uint64_t key = 0;  // of the mapped range
  int refusal = 0;
  doorbell_.beginCopy();
  while (left > 0 && operation.extent < operation.extents.size()) {
    const Extent& extent = operation.extents[operation.extent];
    bool known = key != 0 && key == extent.key;
    if (!known && !neighbour.keys->find(extent.key, &range)) refusal = FI_ENOKEY;
    if (refusal == 0)
      refusal = range.refuses(extent.remote, extent.bytes, transport::accessFor(operation));
    if (refusal != 0) break;
    key = extent.key;
    uint64_t at = operation.into;
    uint64_t bytes = std::min(left, extent.bytes - at);
    local[count] = {regions.find(extent.region)->bytes() + extent.offset + at, bytes};
    remote[count] = {reinterpret_cast<void*>(extent.remote + at), bytes};
    ++count;
    left -= bytes;
    operation.into += bytes;
    if (operation.into == extent.bytes) {
      ++operation.extent;
      operation.into = 0;
    }
  }
  uint64_t done = 0;
  int code = operation.type == Operation::Type::read
                 ? copyFrom(neighbour.pid(), local, remote, count, &done)
                 : copyTo(neighbour.pid(), local, remote, count, &done);
  doorbell_.endCopy();
  operation.done += done;
  return code != 0 ? code : refusal;
}

}  // namespace cinnabar::shm
