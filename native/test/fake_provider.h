// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <netinet/in.h>
#include <rdma/fi_eq.h>

#include <atomic>
#include <cstdlib>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "fabric/address.h"
#include "transport/open_endpoint.h"

namespace cinnabar::test {

/// A provider of function tables: what it takes, when, and what it completes is up to the test.
class FakeProvider {
 public:
  struct Posted {
    fi_addr_t to;
    std::vector<uint8_t> bytes;
    void* context;  // nullptr if injected
  };

  FakeProvider() {
    instance_ = this;
    fidOps_.close = [](fid*) {
      ++instance_->closed;
      return 0;
    };
    messages_.recv = [](fid_ep*, void*, size_t, void*, fi_addr_t, void* context) -> ssize_t {
      if (instance_->refuseReceives) return -FI_EAGAIN;
      instance_->receives.push_back(context);
      return 0;
    };
    messages_.send = [](fid_ep*, const void* bytes, size_t length, void*, fi_addr_t to,
                        void* context) { return instance_->take(to, bytes, length, context); };
    messages_.inject = [](fid_ep*, const void* bytes, size_t length, fi_addr_t to) {
      return instance_->take(to, bytes, length, nullptr);
    };
    rma_.readmsg = [](fid_ep*, const fi_msg_rma* message, uint64_t) -> ssize_t {
      if (instance_->posted.size() >= instance_->most) return -FI_EAGAIN;
      if (message->iov_count == 0) return instance_->take(message->addr, "", 0, nullptr);
      instance_->extents.push_back(message->iov_count);
      instance_->lengths.push_back(message->msg_iov[0].iov_len);
      return instance_->take(message->addr, "", 0, message->context);
    };
    rma_.writemsg = rma_.readmsg;
    cm_.getname = [](fid_t, void* into, size_t* length) {
      auto raw = fabric::encodeSocketAddress("127.0.0.1", 1);
      std::copy(raw->begin(), raw->end(), static_cast<uint8_t*>(into));
      *length = raw->size();
      return 0;
    };
    cqOps_.read = [](fid_cq*, void* into, size_t count) -> ssize_t {
      auto* entries = static_cast<fi_cq_data_entry*>(into);
      if (!instance_->errors.empty()) return -FI_EAVAIL;
      size_t n = 0;
      for (; n < count && !instance_->completions.empty(); ++n) {
        entries[n] = instance_->completions.front();
        instance_->completions.pop_front();
      }
      return n > 0 ? static_cast<ssize_t>(n) : -FI_EAGAIN;
    };
    cqOps_.readerr = [](fid_cq*, fi_cq_err_entry* into, uint64_t) -> ssize_t {
      if (instance_->errors.empty()) return -FI_EAGAIN;
      *into = instance_->errors.front();
      instance_->errors.pop_front();
      return 1;
    };
    avOps_.insert = [](fid_av*, const void* raw, size_t, fi_addr_t* into, uint64_t, void*) {
      *into = instance_->nextAddress;
      if (instance_->knowsAgain) {
        std::string key(static_cast<const char*>(raw), sizeof(sockaddr_in));
        *into = instance_->known.try_emplace(key, *into).first->second;
      }
      if (*into == instance_->nextAddress) ++instance_->nextAddress;
      return 1;
    };
    avOps_.remove = [](fid_av*, fi_addr_t* address, size_t, uint64_t) {
      instance_->removed.push_back(*address);
      instance_->crashed |= std::erase(instance_->notBegun, *address) > 0;
      return 0;
    };
    fabricOps_.trywait = [](fid_fabric*, fid**, int) { return 0; };
    for (fid* object : {&ep_.fid, &cq_.fid, &av_.fid, &fabric_.fid}) object->ops = &fidOps_;
    fabric_.ops = &fabricOps_;
    ep_.msg = &messages_;
    ep_.rma = &rma_;
    ep_.cm = &cm_;
    cq_.ops = &cqOps_;
    av_.ops = &avOps_;
  }

  std::unique_ptr<transport::Transport> transport(fabric::EndpointTraits traits = {}) {
    return transport::transportFor(fabric::Scheme::tcp, endpoint(traits));
  }

  std::unique_ptr<fabric::Endpoint> endpoint(fabric::EndpointTraits traits = {}) {
    fabric::Endpoint::Parts parts;
    parts.fabric.reset(&fabric_);
    parts.av.reset(&av_);
    parts.cq.reset(&cq_);
    parts.ep.reset(&ep_);
    if (traits.endsConnections || traits.provesWrites) {
      auto* info = static_cast<fi_info*>(calloc(1, sizeof(fi_info)));
      parts.info = fabric::InfoPtr(info, {fabric::library()});
      parts.info->src_addrlen = sizeof(sockaddr_in);
    }
    traits.injectBytes = 16;
    traits.sayBytes = 64;
    traits.maxMessageBytes = 1 << 20;
    traits.extents = 4;
    return std::make_unique<fabric::Endpoint>(std::move(parts), traits);
  }

  void complete(void* context) { completions.push_back({context, 0, 0, nullptr, 0}); }
  /// A message has come into the receive that was posted as the `index`th.
  void deliver(size_t index, size_t bytes) {
    completions.push_back({receives[index], FI_RECV | FI_MSG, bytes, nullptr, 0});
  }
  void fail(void* context, int code) {
    fi_cq_err_entry entry{};
    entry.op_context = context;
    entry.err = code;
    entry.prov_errno = -17;
    errors.push_back(entry);
  }

  std::deque<Posted> posted;
  std::vector<void*> receives;
  std::deque<fi_cq_data_entry> completions;
  std::deque<fi_cq_err_entry> errors;
  std::vector<fi_addr_t> removed;
  std::vector<fi_addr_t> stuck;     // addresses that answer EAGAIN
  std::vector<fi_addr_t> notBegun;  // whose connection rxm has not begun, or not any more
  std::vector<fi_addr_t> refused;   // whose connection was refused, which the next post will hear
  bool crashed = false;             // one of those was removed
  int error = 0;                    // what every post answers, if not 0
  size_t most = SIZE_MAX;           // reads and writes it takes, after which they get EAGAIN
  std::vector<size_t> extents;      // how many each one had
  std::vector<size_t> lengths;      // and the first extent of each
  bool refuseReceives = false;
  size_t tries = 0;
  std::atomic<size_t> closed = 0;  // objects
  fi_addr_t nextAddress = 0;
  bool knowsAgain = false;  // gives an address that it knows the same number, as rxm does
  std::map<std::string, fi_addr_t> known;

 private:
  ssize_t take(fi_addr_t to, const void* bytes, size_t length, void* context) {
    ++tries;
    if (error != 0) return error;
    if (std::erase(refused, to) > 0) {
      notBegun.push_back(to);
      return -FI_EAGAIN;
    }
    if (std::erase(notBegun, to) > 0) return -FI_EAGAIN;
    for (fi_addr_t address : stuck) {
      if (address == to) return -FI_EAGAIN;
    }
    auto* begin = static_cast<const uint8_t*>(bytes);
    posted.push_back({to, {begin, begin + length}, context});
    return 0;
  }

  inline static FakeProvider* instance_ = nullptr;
  fi_ops fidOps_{};
  fi_ops_msg messages_{};
  fi_ops_rma rma_{};
  fi_ops_cm cm_{};
  fi_ops_cq cqOps_{};
  fi_ops_av avOps_{};
  fi_ops_fabric fabricOps_{};
  fid_ep ep_{};
  fid_cq cq_{};
  fid_av av_{};
  fid_fabric fabric_{};
};

}  // namespace cinnabar::test
