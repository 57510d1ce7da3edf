// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <vector>

#include "transport/shm/doorbell.h"
#include "transport/shm/neighbours.h"
#include "transport/transport.h"

namespace cinnabar::shm {

/// The largest piece of a direct copy.
constexpr uint64_t kCopyBytes = 256 << 10;

/// Reads and writes of neighbours' memory as copies between the processes (process_memory.h). A
/// turn copies a piece of each operation, and has a bound, since the thread has other work.
class DirectCopies {
 public:
  /// `doorbell` outlives this.
  explicit DirectCopies(Doorbell& doorbell) : doorbell_(doorbell) {}

  bool isEmpty() const { return copies_.empty(); }
  void add(transport::Operation& operation) {
    operation.state = transport::Operation::State::moving;
    copies_.push(&operation);
  }
  /// Copies for the rest of the turn. Appends the finished operations to `over`.
  void advance(const transport::RegionTable& regions, std::vector<transport::Ended>& over);
  /// Takes an address's copies out.
  std::vector<transport::Operation*> takeBack(uint32_t address) { return copies_.takeOut(address); }
  void endTurn() { spentNs_ = 0; }

 private:
  int copyPiece(transport::Operation& operation, const transport::RegionTable& regions);
  int copyRuns(transport::Operation& operation, Neighbour& neighbour,
               const transport::RegionTable& regions);

  Doorbell& doorbell_;
  transport::OperationQueue copies_;
  uint64_t spentNs_ = 0;   // in this turn
  uint64_t slowdown_ = 1;  // the factor by which their pieces are smaller
};

}  // namespace cinnabar::shm
