// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "fabric/memory.h"

#include <sys/random.h>

namespace cinnabar::fabric {

uint64_t randomNumber() {
  uint64_t number = 0;
  size_t have = 0;
  while (have < sizeof number) {
    ssize_t got = getrandom(reinterpret_cast<uint8_t*>(&number) + have, sizeof number - have, 0);
    if (got > 0) have += static_cast<size_t>(got);
  }
  return number;
}

int Region::open(const Endpoint& endpoint, void* bytes, size_t length, uint32_t access,
                 std::unique_ptr<Region>* into) {
  int mode = endpoint.traits().mrMode;
  std::unique_ptr<Region> region(new Region(static_cast<uint8_t*>(bytes), length));
  uint64_t rights = 0;
  if (access & kRemoteRead) rights |= FI_REMOTE_READ;
  if (access & kRemoteWrite) rights |= FI_REMOTE_WRITE;
  if (mode & FI_MR_LOCAL) rights |= FI_SEND | FI_RECV | FI_READ | FI_WRITE;
  if (rights != 0) {
    // A peer that knows a key may use it until the region is gone, so keys are drawn at random;
    // with PROV_KEY the provider chooses instead (fi_mr(3)). A collision is as good as impossible,
    // but cheap to answer.
    int status = -FI_ENOKEY;
    for (int attempt = 0; attempt < 4 && status == -FI_ENOKEY; ++attempt) {
      fid_mr* mr = nullptr;
      uint64_t key = mode & FI_MR_PROV_KEY ? 0 : randomNumber();
      status = fi_mr_reg(endpoint.domain(), bytes, length, rights, 0, key, 0, &mr, nullptr);
      if (status == 0) region->mr_.reset(mr);
    }
    if (status != 0) return status;
  }
  if (mode & FI_MR_VIRT_ADDR) region->base_ = reinterpret_cast<uint64_t>(bytes);
  *into = std::move(region);
  return 0;
}

}  // namespace cinnabar::fabric
