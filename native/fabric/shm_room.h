// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <optional>

#include "fabric/failure.h"

namespace cinnabar::fabric {

/// The pages of shm's regions in /dev/shm.
///
/// A region is a sparse file that its owner and its peers write to. A page that cannot be had at
/// that moment is a SIGBUS in the writer, so pages are reserved when the region is made. Two
/// functions that the provider calls are replaced for that (Patch::sharedRoom):
///   - ftruncate also reserves the pages of a new region, so that making it fails instead;
///   - statvfs shows no shortage: the provider asks for a region's size for each processor of the
///     machine, 1 GiB on 64, and offers nothing otherwise.
/// Then `trimRegion` gives back what will not be used: the buffers of the provider's own copies,
/// which `reserveCopies` reserves where they are needed after all, and the end of the file.

/// On this thread, regions are made as said above while one of these lives.
class ShmRoom {
 public:
  ShmRoom();
  ~ShmRoom();
  ShmRoom(const ShmRoom&) = delete;
  ShmRoom& operator=(const ShmRoom&) = delete;

  /// Why the region could not be made, if for want of room.
  std::optional<Failure> shortage() const;
};

/// Why no region can be made, if there is no /dev/shm that this process can write to.
std::optional<Failure> shmObstacle();

/// Gives back the pages of a new region that nobody uses.
void trimRegion(int file);

/// Reserves the buffers through which the provider copies between processes. 0, or an errno.
int reserveCopies(int file);

}  // namespace cinnabar::fabric
