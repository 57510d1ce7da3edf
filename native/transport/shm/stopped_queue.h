// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "transport/shm/neighbours.h"

namespace cinnabar::shm {

/// Frees the queue of an shm region that a dead process has stopped.
///
/// In libfabric 2.1 a poster takes a place in the region's queue, fills it and marks it as filled.
/// A process that is killed in between leaves a place that is never filled, and the owner waits at
/// it for ever. The place looks like one that a live process is about to fill.
///
/// So each port shows in its doorbell's page when it is inside a post (Doorbell::beginPost). When a
/// neighbour has ended, the owner lists the places that are taken and not filled, and then the
/// ports that are inside a post. When all of those have finished their post, the listed places that
/// are still not filled belonged to the dead process. They are passed over, as posts that were
/// given up. This is safe:
///
/// - A poster sets its word before it takes a place. So the poster of a listed place is either seen
///   inside its post, or has finished it, and then its filled place is seen too.
/// - A port posts only when the owner has its doorbell (hello.h), so a port that comes later has no
///   listed place.
/// - A neighbour whose socket ends meanwhile is dead, or has closed and posts no more.
/// - The owner itself is inside no post when it looks.
class StoppedQueue {
 public:
  /// The queue of the endpoint that has made this region, has met nobody yet and outlives this.
  /// nullptr where it is not needed, or where the layout is not the one that is known here.
  static std::unique_ptr<StoppedQueue> of(int regionFile);
  /// The same for a region in memory. Needs no libfabric.
  static std::unique_ptr<StoppedQueue> in(uint8_t* region);

  /// Call it when neighbours may have ended, and again while `isStopped`, where the endpoint may be
  /// polled. True if places were passed over, so that the queue can be read on.
  ///
  /// `Posters` is `Neighbours`, except in tests.
  template <typename Posters>
  bool passOver(const Posters& posters) {
    if (uint64_t ended = posters.ended(); ended != ended_) {
      ended_ = ended;
      places_ = unfilled();
      if (!places_.empty()) posts_ = posters.postsUnderWay();
    }
    if (places_.empty()) return false;
    std::erase_if(posts_, [&](const UnderWay& post) { return !posters.isPosting(post); });
    return posts_.empty() && giveUp();
  }
  /// Whether listed places wait for the end of posts.
  bool isStopped() const { return !places_.empty(); }

 private:
  StoppedQueue(uint8_t* queue, int64_t size) : queue_(queue), size_(size) {}

  uint8_t* entry(int64_t place) const;
  std::vector<int64_t> unfilled() const;
  bool giveUp();

  uint8_t* queue_;
  int64_t size_;
  uint64_t ended_ = 0;           // how many neighbours had ended at the last look
  std::vector<int64_t> places_;  // taken and not filled at that look
  std::vector<UnderWay> posts_;  // under way at that look, and still
};

}  // namespace cinnabar::shm
