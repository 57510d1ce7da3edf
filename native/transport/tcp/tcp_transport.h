// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "transport/fabric_transport.h"
#include "transport/tcp/socket_calls.h"
#include "transport/tcp/socket_watch.h"

namespace cinnabar::tcp {

/// The tcp provider, with a watch over its sockets. docs/design/tcp.md.
class TcpTransport : public transport::FabricTransport {
 public:
  TcpTransport(std::unique_ptr<fabric::Endpoint> endpoint, std::unique_ptr<SocketWatch> watch);
  ~TcpTransport() override;

  transport::News takeNews() override;
  bool beginTurn() override {
    watch_->sweep();
    return false;
  }
  /// Answers to reads may wait for others that do not come.
  void endPoll() override { sendWhatWaits(); }
  bool watchesSockets() const override { return true; }
  std::vector<transport::Connection> connections() const override { return watch_->connections(); }
  uint64_t connectionsMade() const override { return watch_->connectionsMade(); }
  bool trustsStreams() const override { return traits().trustsStreams && !watch_->filters(); }

  bool cutOff(transport::Peer& peer) override;
  bool revokesKeys() const override { return watch_->filters(); }
  void withdraw(uint32_t index, fabric::Region& region) override;
  bool isCopied(uint32_t index) override;

  int postPart(transport::Part& part, const fi_msg_rma& message, int* stop) override;
  void endTransfer(transport::Operation&) override;

 protected:
  fi_addr_t insert(const uint8_t* address) override;
  void remove(fi_addr_t address) override;

 private:
  std::unique_ptr<SocketWatch> watch_;
  struct Known {
    fi_addr_t address;
    uint32_t uses;
  };
  std::multimap<fabric::RawAddress, Known> known_;

  /// A region that was withdrawn during transfers of peers.
  struct Awaited {
    uint64_t key;
    std::vector<SocketWatch::Use> uses;
    uint64_t sinceNs;  // when they were seen to move
  };
  std::unordered_map<uint32_t, Awaited> awaited_;
};

}  // namespace cinnabar::tcp
