// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "transport/shm/peer_slots.h"

#include <unistd.h>

#include <cstring>

#include "fabric/patches.h"
#include "transport/shm/smr_region.h"
#include "transport/shm/stale_lock_reaper.h"

namespace cinnabar::shm {
namespace {

// prov/shm/src/smr_util.h of 2.1, built without its debugging aids.
constexpr size_t kMapAt = 64;
constexpr size_t kRecordsAt = 112;  // an offset from the base
constexpr size_t kOwnersAt = 88;    // in struct smr_map
constexpr size_t kOwnerBytes = 288;
constexpr size_t kRecordBytes = 296;
constexpr size_t kIdAt = 256;  // in either
constexpr size_t kNameSentAt = 268;
constexpr int64_t kSlots = 256;
constexpr int64_t kNobody = -1;

template <typename T>
void writeAt(uint8_t* at, T value) {
  memcpy(at, &value, sizeof value);
}

int64_t idAt(const uint8_t* entry) { return smr::readAt<int64_t>(entry + kIdAt); }

}  // namespace

std::unique_ptr<PeerSlots> PeerSlots::of(int regionFile) {
  if (!fabric::allowsPatch(fabric::Patch::peerSlots)) return nullptr;
  auto head = RegionHead::map(regionFile, getpid());
  if (!head || smr::readAt<uint16_t>(head->bytes() + smr::kFlagsAt) & smr::kDebugFlag)
    return nullptr;
  const uint8_t* owners = smr::readAt<const uint8_t*>(head->bytes() + kMapAt) + kOwnersAt;
  uint8_t* records = smr::readAt<uint8_t*>(head->bytes() + smr::kBaseAt) +
                     smr::readAt<size_t>(head->bytes() + kRecordsAt);
  // Nobody was met yet, which proves the layout.
  for (int64_t slot = 0; slot < kSlots; ++slot) {
    if (idAt(owners + slot * kOwnerBytes) != kNobody ||
        idAt(records + slot * kRecordBytes) != kNobody)
      return nullptr;
  }
  fabric::notePatched(fabric::Patch::peerSlots);
  return std::unique_ptr<PeerSlots>(new PeerSlots(owners, records));
}

void PeerSlots::clearUnused() {
  for (int64_t slot = 0; slot < kSlots; ++slot) {
    if (idAt(owners_ + slot * kOwnerBytes) != kNobody) continue;
    uint8_t* record = records_ + slot * kRecordBytes;
    writeAt<int64_t>(record + kIdAt, kNobody);
    writeAt<uint16_t>(record + kNameSentAt, 0);
  }
}

}  // namespace cinnabar::shm
