// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/fd.h"
#include "transport/fabric_transport.h"

namespace cinnabar::ofi_shm {

/// libfabric's provider `shm`: the plain case, with names for addresses. Nothing in it is repaired;
/// docs/guide/fabrics.md says what it does not survive.
///
/// The provider crashes at a message from a peer that was removed from the address vector. So the
/// address of a peer that lives stays there, though nobody speaks with the peer any more.
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

 protected:
  fi_addr_t insert(const uint8_t* address) override;
  void remove(fi_addr_t address) override;

 private:
  /// The file of an address, as it was when the address was inserted.
  struct File {
    std::string path;
    ino_t number = 0;
    size_t uses = 0;  // of the address
  };

  static bool hasOwner(const File& file);
  void removeGone();
  void removeNow(fi_addr_t address);

  std::string name_;
  base::Fd lock_;  // on the endpoint's file, for as long as the process lives
  std::unordered_map<fi_addr_t, File> files_;
  std::vector<fi_addr_t> left_;  // nobody speaks with them any more
};

}  // namespace cinnabar::ofi_shm
