// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include "transport/fabric_transport.h"
#include "transport/verbs/connection_addresses.h"
#include "transport/verbs/refusals.h"

namespace cinnabar::verbs {

/// What rxm over RDMA devices needs: the end of connections after a failure, and a proof that
/// writes have arrived. docs/design/verbs.md.
class VerbsTransport : public transport::FabricTransport {
 public:
  VerbsTransport(fabric::Scheme scheme, std::unique_ptr<fabric::Endpoint> endpoint);

  int send(transport::Operation& operation, const uint8_t* bytes, void* descriptor) override;
  void say(transport::Peer& peer, const uint8_t* bytes, size_t length) override;
  int beginTransfer(transport::Operation& operation) override;
  int postPart(transport::Part& part, const fi_msg_rma& message, int* stop) override;
  void onFailed(transport::Peer& peer, uint32_t connection) override;
  void endConnection(transport::Peer& peer) override;
  transport::News takeNews() override;

 protected:
  fi_addr_t insert(const uint8_t* address) override;
  void remove(fi_addr_t address) override;

 private:
  /// Writes of the present operation without a posted proof. Within one call of the port only.
  struct Unproven {
    transport::Part* last = nullptr;  // has the bytes of all of them
    size_t first = 0;                 // extent
    size_t writes = 0;

    void add(transport::Part& part);
    bool hasRoom() const;
  };

  int postProof(fi_msg_rma message);
  void writeAgain(transport::Operation& operation);

  Unproven unproven_;

  ConnectionAddresses addresses_;
  std::unique_ptr<RefusalWatch> refusals_;
};

}  // namespace cinnabar::verbs
