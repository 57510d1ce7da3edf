// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <memory>
#include <string>

#include "base/fd.h"
#include "transport/fabric_transport.h"

namespace cinnabar::ofi_shm {

/// libfabric's provider `shm`: the plain case, with names for addresses. Nothing in it is repaired;
/// docs/guide/fabrics.md says what it does not survive.
class OfiShmTransport : public transport::FabricTransport {
 public:
  static fabric::Result<std::unique_ptr<transport::Transport>> open(
      const transport::OpenRequest& request);

  OfiShmTransport(std::string name, base::Fd lock, std::unique_ptr<fabric::Endpoint> endpoint);
  ~OfiShmTransport() override;

  const std::string& name() const override { return name_; }
  fabric::Result<fabric::RawAddress> addressOf(const std::string& name,
                                               uint32_t service) const override;
  int admit(const uint8_t* address, size_t length, transport::Peer** into) override;

 private:
  std::string name_;
  base::Fd lock_;  // on the endpoint's file, for as long as the process lives
};

}  // namespace cinnabar::ofi_shm
