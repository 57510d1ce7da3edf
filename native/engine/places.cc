// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "engine/places.h"

#include <unistd.h>

#include <cstring>

#include "engine/undertaker.h"
#include "fabric/library.h"
#include "fabric/quirks.h"

namespace cinnabar::engine {
namespace {

// prov/shm/src/smr_util.h of 2.1, built without its debugging aids.
constexpr size_t kFlagsAt = 2;  // of struct smr_region
constexpr uint16_t kDebugFlag = 2;
constexpr size_t kBaseAt = 48;
constexpr size_t kMapAt = 64;
constexpr size_t kRecordsAt = 112;  // an offset from the base
constexpr size_t kOwnersAt = 88;    // in struct smr_map
constexpr size_t kOwnerBytes = 288;
constexpr size_t kRecordBytes = 296;
constexpr size_t kIdAt = 256;  // in either
constexpr size_t kNameSentAt = 268;
constexpr int64_t kPlaces = 256;
constexpr int64_t kNobody = -1;

template <typename T>
T readAt(const uint8_t* at) {
  T value;
  memcpy(&value, at, sizeof value);
  return value;
}

template <typename T>
void writeAt(uint8_t* at, T value) {
  memcpy(at, &value, sizeof value);
}

int64_t idAt(const uint8_t* entry) { return readAt<int64_t>(entry + kIdAt); }

}  // namespace

std::unique_ptr<PeerPlaces> PeerPlaces::of(int regionFile) {
  const fabric::Library* library = fabric::library();
  if (library == nullptr ||
      !fabric::hasQuirk(fabric::Quirk::remembersPeers, "shm", library->loadedVersion))
    return nullptr;
  auto head = RegionHead::map(regionFile, getpid());
  if (!head || readAt<uint16_t>(head->bytes() + kFlagsAt) & kDebugFlag) return nullptr;
  const uint8_t* owners = readAt<const uint8_t*>(head->bytes() + kMapAt) + kOwnersAt;
  uint8_t* records =
      readAt<uint8_t*>(head->bytes() + kBaseAt) + readAt<size_t>(head->bytes() + kRecordsAt);
  // Nobody was met yet, which proves the layout.
  for (int64_t place = 0; place < kPlaces; ++place) {
    if (idAt(owners + place * kOwnerBytes) != kNobody ||
        idAt(records + place * kRecordBytes) != kNobody)
      return nullptr;
  }
  return std::unique_ptr<PeerPlaces>(new PeerPlaces(owners, records));
}

void PeerPlaces::clearUnused() {
  for (int64_t place = 0; place < kPlaces; ++place) {
    if (idAt(owners_ + place * kOwnerBytes) != kNobody) continue;
    uint8_t* record = records_ + place * kRecordBytes;
    writeAt<int64_t>(record + kIdAt, kNobody);
    writeAt<uint16_t>(record + kNameSentAt, 0);
  }
}

}  // namespace cinnabar::engine
