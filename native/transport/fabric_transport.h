// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "transport/transport.h"

namespace cinnabar::transport {

/// A libfabric provider that keeps the promises of libfabric's pages. tcp/ and verbs/ override what
/// their providers need beside it.
class FabricTransport : public Transport {
 public:
  FabricTransport(fabric::Scheme scheme, std::unique_ptr<fabric::Endpoint> endpoint);
  ~FabricTransport() override;

  void close(const RegionTable& regions) override;

  fabric::RawAddress address() const override { return endpoint_->name(); }
  fabric::Result<fabric::RawAddress> addressOf(const std::string& host,
                                               uint32_t service) const override;
  int admit(const uint8_t* address, size_t length, Peer** into) override;
  void release(Peer& peer) override;

  int send(Operation& operation, const uint8_t* bytes, void* descriptor) override;
  void say(Peer& peer, const uint8_t* bytes, size_t length) override;
  int postPart(Part& part, const fi_msg_rma& message, int* stop) override;

  ssize_t receive(void* bytes, size_t length, void* descriptor, void* context) override {
    return endpoint_->receive(bytes, length, descriptor, context);
  }
  ssize_t read(fi_cq_data_entry* entries, size_t count) override {
    return endpoint_->read(entries, count);
  }
  ssize_t readError(fi_cq_err_entry* into) override { return endpoint_->readError(into); }
  int announceSleep() override { return endpoint_->tryWait(); }

  int registerMemory(void* bytes, size_t length, uint32_t access, uint64_t key,
                     std::unique_ptr<fabric::Region>* into) override;
  int prepareMemory(fabric::Region& region) override { return region.prepare(*endpoint_); }
  int registerSlots(void* slab, size_t length, std::unique_ptr<fabric::Region>* into) override;

 protected:
  /// In the address vector.
  virtual fi_addr_t insert(const uint8_t* address);
  virtual void remove(fi_addr_t address);
  int postMessage(const Part& part, const fi_msg_rma& message);
  /// Makes a peer of a checked address.
  int insertInto(const uint8_t* address, Peer** into);

  fabric::Scheme scheme_;
  std::unique_ptr<fabric::Endpoint> endpoint_;

 private:
  std::deque<Peer> peers_;
  std::vector<Peer*> freePeers_;
};

}  // namespace cinnabar::transport
