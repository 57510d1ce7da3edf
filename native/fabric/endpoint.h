// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include <chrono>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "fabric/info.h"

namespace cinnabar::fabric {

struct FidDeleter {
  template <typename T>
  void operator()(T* object) const {
    fi_close(&object->fid);
  }
};
template <typename T>
using Fid = std::unique_ptr<T, FidDeleter>;

/// The most extents in one read or write, even if the provider takes more.
constexpr size_t kMostExtentsAtOnce = 16;

/// The provider's answer to the request for an endpoint (fi_getinfo(3)); 0 and "" for fields that
/// it leaves out.
struct Granted {
  std::string device;  // libfabric's name of the domain: for verbs the RDMA device
  uint64_t mtuBytes = 0;
  uint64_t sendDepth = 0;
  uint64_t receiveDepth = 0;
  uint64_t completionDepth = 0;
  uint64_t injectBytes = 0;
  uint64_t maxMessageBytes = 0;
  uint64_t localExtents = 0;   // of local memory in one operation
  uint64_t remoteExtents = 0;  // of the peer's
};

/// The fixed properties of an open endpoint.
struct EndpointTraits {
  std::string provider;
  uint32_t providerVersion = 0;
  size_t injectBytes = 0;
  /// The longest message that may go without a completion, if its loss does not matter.
  size_t sayBytes = 0;
  size_t maxMessageBytes = 0;
  size_t extents = 1;         // that one read or write takes
  size_t immediateBytes = 0;  // that a write can carry to its target beside its length; 0 or 8
  int mrMode = 0;
  uint64_t messageRights = FI_SEND | FI_RECV;  // what message buffers are registered for
  /// Owned by the completion queue. -1: the provider has no descriptor (FI_WAIT_FD), so a sleeper
  /// has to look.
  int waitFd = -1;
  /// After fi_trywait has let a reader sleep, the descriptor stays readable while the queue holds
  /// completions. If this is false, a sleeper has to look once more.
  bool tellsReliably = false;
  bool drainBeforeClose = false;
  /// Each write is followed by an empty read, which completes when the data is in place.
  bool provesWrites = false;
  /// The most connections with room in the completion queue; 0: any number.
  size_t maxPeers = 0;
  /// A closed registration is void at once, for transfers under way too.
  bool revokesKeys = false;
  /// Removing an address ends the connection to it (transport/verbs/connection_addresses.h).
  bool endsConnections = false;
  /// How long an address without a user stays. A connect waits as long by default.
  std::chrono::milliseconds linger{5000};
  /// If not 0, the provider itself ends a connection after a failure, within this time. Until then
  /// its address rests, and is not removed.
  std::chrono::milliseconds rest{0};
  /// If not 0: an extent of at most this many bytes arrives damaged where it crosses a page of the
  /// memory that it is read from.
  size_t tornBytes = 0;
  /// The provider does not report a refused connection, and tries to connect again and again.
  bool hidesRefusals = false;
  /// The provider trusts the bytes of every peer that can connect (Quirk::trustsStreams).
  bool trustsStreams = false;
  Granted granted;
};

/// One reliable-datagram endpoint with its own fabric, domain, address vector and one completion
/// queue.
///
/// The members are destroyed in reverse order, as providers require: endpoint, queue, address
/// vector, domain, fabric. Memory regions belong to the domain and must be freed before
/// (fi_domain(3)).
class Endpoint {
 public:
  struct Parts {
    InfoPtr info;
    Fid<fid_fabric> fabric;
    Fid<fid_domain> domain;
    Fid<fid_av> av;
    Fid<fid_cq> cq;
    Fid<fid_ep> ep;
  };

  static Result<std::unique_ptr<Endpoint>> open(const Library& library, const InfoRequest& request);

  /// Takes ready-made parts; tests pass tables of their own.
  Endpoint(Parts parts, EndpointTraits traits)
      : parts_(std::move(parts)), traits_(std::move(traits)) {}

  const EndpointTraits& traits() const { return traits_; }
  /// The address the endpoint is bound to (fi_getname), empty on failure.
  RawAddress name() const;

  fid_ep* ep() const { return parts_.ep.get(); }
  fid_av* av() const { return parts_.av.get(); }
  fid_domain* domain() const { return parts_.domain.get(); }
  /// The length of its own address, and of each peer's.
  size_t addressBytes() const { return parts_.info->src_addrlen; }

  /// Posts a receive from any sender (fi_recv(3)): 0 or a negated error.
  ssize_t receive(void* bytes, size_t length, void* descriptor, void* context) {
    return fi_recv(parts_.ep.get(), bytes, length, descriptor, FI_ADDR_UNSPEC, context);
  }

  /// Takes completions out of the queue (fi_cq_read(3)). This makes the provider move its
  /// operations under way.
  ssize_t read(fi_cq_data_entry* entries, size_t count) const {
    return fi_cq_read(parts_.cq.get(), entries, count);
  }
  /// The error that `read` found (fi_cq_readerr(3)).
  ssize_t readError(fi_cq_err_entry* into) const { return fi_cq_readerr(parts_.cq.get(), into, 0); }

  /// Closes the endpoint and its queues, but not the domain, so that regions can follow. No other
  /// function may be called after it.
  void shut();

  /// Whether it is safe to sleep on the wait fd now (fi_trywait(3)): 0, or -FI_EAGAIN when
  /// completions wait.
  int tryWait() const;

  /// FI_ADDR_NOTAVAIL if the address cannot be inserted. An address that was inserted twice must be
  /// removed twice.
  fi_addr_t insert(const uint8_t* address);
  void remove(fi_addr_t address);

 private:
  void drain();

  Parts parts_;
  EndpointTraits traits_;
  /// The uses of each address: providers may give a known address the same number again.
  std::unordered_map<fi_addr_t, uint32_t> uses_;
};

}  // namespace cinnabar::fabric
