// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "fabric/memory.h"

#include <sys/random.h>

#include <array>
#include <utility>

namespace cinnabar::fabric {

uint64_t randomNumber() {
  // A system call for each number would be most of a registration's cost. getrandom(2) delivers
  // this many bytes whole.
  thread_local std::array<uint64_t, 32> numbers;
  thread_local size_t left = 0;
  for (;;) {
    while (left == 0) {
      if (getrandom(numbers.data(), sizeof numbers, 0) == sizeof numbers) left = numbers.size();
    }
    uint64_t number = std::exchange(numbers[--left], 0);
    if (number != 0) return number;
  }
}

int Region::open(const Endpoint& endpoint, void* bytes, size_t length, uint32_t access,
                 uint64_t key, std::unique_ptr<Region>* into, Use use) {
  int mode = endpoint.traits().mrMode;
  uint64_t local = 0;
  if (mode & FI_MR_LOCAL) {
    // FI_READ is for memory that we read into (fi_mr(3)).
    uint64_t transfers = access == kSource ? FI_WRITE : FI_READ | FI_WRITE;
    local = use == Use::transfers ? transfers : endpoint.traits().messageRights;
  }
  bool isGranted = (access & (kRemoteRead | kRemoteWrite)) != 0;
  std::unique_ptr<Region> region(
      new Region(static_cast<uint8_t*>(bytes), length, local, isGranted));
  uint64_t rights = 0;
  if (access & kRemoteRead) rights |= FI_REMOTE_READ;
  if (access & kRemoteWrite) rights |= FI_REMOTE_WRITE;
  if (rights == 0) {
    if (int status = region->prepare(endpoint); status != 0) return status;
  } else {
    fid_mr* mr = nullptr;
    uint64_t wanted = mode & FI_MR_PROV_KEY ? 0 : key;  // fi_mr(3)
    int status = fi_mr_reg(endpoint.domain(), bytes, length, rights, 0, wanted, 0, &mr, nullptr);
    if (status != 0) return status;
    region->mr_.reset(mr);
  }
  if (mode & FI_MR_VIRT_ADDR) region->base_ = reinterpret_cast<uint64_t>(bytes);
  *into = std::move(region);
  return 0;
}

std::unique_ptr<Region> Region::unregistered(void* bytes, size_t length, uint32_t access,
                                             uint64_t key) {
  std::unique_ptr<Region> region(new Region(static_cast<uint8_t*>(bytes), length, 0, access != 0));
  region->base_ = reinterpret_cast<uint64_t>(bytes);
  if (access != 0) region->key_ = key;
  return region;
}

int Region::prepare(const Endpoint& endpoint) {
  if (localRights_ == 0 || local_) return 0;
  fid_mr* mr = nullptr;
  uint64_t key = endpoint.traits().mrMode & FI_MR_PROV_KEY ? 0 : randomNumber();
  int status = fi_mr_reg(endpoint.domain(), bytes_, length_, localRights_, 0, key, 0, &mr, nullptr);
  if (status == 0) local_.reset(mr);
  return status;
}

void Region::withdraw(bool keyToo) {
  withdrawn_ = true;
  if (keyToo) mr_.reset();
}

}  // namespace cinnabar::fabric
