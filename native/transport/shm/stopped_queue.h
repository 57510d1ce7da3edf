// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "transport/shm/neighbours.h"

namespace cinnabar::shm {

/// Sets the queue of an shm region going again that a dead process has stopped.
///
/// In libfabric 2.1 who posts to a region takes a place in its queue, fills it and says so. A
/// process that is killed in between leaves a place that is never filled, and the owner waits at it
/// for ever. From without it looks as one that a live process is about to fill. So each port shows
/// in its doorbell's page when it is inside a post (Doorbell::beginPost), and when a neighbour has
/// ended the owner lists the places that are taken and not filled, then looks who is inside a post.
/// Once each of those is through with it, whatever of the list is still not filled was the dead
/// one's, and is passed over as a post that its poster has given up:
///
/// - The word is set before a place is taken, and a place before it counts as taken. So the poster
///   of a listed place is seen to post, or to be through, and then what it filled is seen too.
/// - Nobody posts before the owner has its doorbell (hello.h), so a later poster has no listed
///   place.
/// - A neighbour whose socket has ended meanwhile is dead, or has closed and posts no more.
/// - The owner itself is inside no post when it looks.
class StoppedQueue {
 public:
  /// The queue of the endpoint that has made this region, has met nobody yet and outlives this.
  /// nullptr where it is not needed, or where the layout is not the one that is known here.
  static std::unique_ptr<StoppedQueue> of(int regionFile);
  /// The same of a region in memory. Needs no libfabric.
  static std::unique_ptr<StoppedQueue> in(uint8_t* region);

  /// To be called after neighbours may have ended, and again while `isStopped`, where the endpoint
  /// may be polled. True if the queue may be read on.
  ///
  /// `Posters` is `Neighbours` but in tests.
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
  /// Whether somebody is waited for.
  bool isStopped() const { return !places_.empty(); }

 private:
  StoppedQueue(uint8_t* queue, int64_t size) : queue_(queue), size_(size) {}

  uint8_t* entry(int64_t place) const;
  std::vector<int64_t> unfilled() const;
  bool giveUp();

  uint8_t* queue_;
  int64_t size_;
  uint64_t ended_ = 0;           // how many neighbours had, at the last look
  std::vector<int64_t> places_;  // taken and not filled then
  std::vector<UnderWay> posts_;  // that were under way then, and still are
};

}  // namespace cinnabar::shm
