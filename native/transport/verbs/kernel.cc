// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "transport/verbs/kernel.h"

#include <linux/netlink.h>
#include <rdma/rdma_netlink.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <cerrno>
#include <cstring>

#include "base/fd.h"

namespace cinnabar::verbs {
namespace {

constexpr size_t kPieceBytes = 32 << 10;
// Some ten thousand connections.
constexpr size_t kMostBytes = 4 << 20;

struct DumpRequest {
  nlmsghdr header;
  nlattr attribute;
  uint32_t device;
};

/// Whether these messages hold the end of an answer: NLMSG_DONE, or an error.
bool isEnd(const uint8_t* bytes, size_t length) {
  nlmsghdr header;
  while (length >= sizeof header) {
    std::memcpy(&header, bytes, sizeof header);
    if (header.nlmsg_type == NLMSG_DONE || header.nlmsg_type == NLMSG_ERROR) return true;
    size_t step = NLMSG_ALIGN(header.nlmsg_len);
    if (step < sizeof header || step > length) return true;
    bytes += step;
    length -= step;
  }
  return false;
}

}  // namespace

int askKernel(uint16_t command, int64_t device, std::vector<uint8_t>* answer) {
  base::Fd socket(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_RDMA));
  if (!socket) return -errno;
  // The kernel answers while it is asked; this is for one that does not.
  timeval patience{1, 0};
  setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);

  DumpRequest request{};
  request.header.nlmsg_len = device < 0 ? sizeof request.header : sizeof request;
  request.header.nlmsg_type = static_cast<uint16_t>(RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, command));
  request.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_DUMP;
  request.attribute = {sizeof request.attribute + sizeof request.device, RDMA_NLDEV_ATTR_DEV_INDEX};
  request.device = static_cast<uint32_t>(device);
  sockaddr_nl kernel{};
  kernel.nl_family = AF_NETLINK;
  if (sendto(socket.get(), &request, request.header.nlmsg_len, 0,
             reinterpret_cast<const sockaddr*>(&kernel), sizeof kernel) < 0)
    return -errno;

  for (bool ended = false; !ended;) {
    size_t had = answer->size();
    if (had > kMostBytes) return -EMSGSIZE;
    answer->resize(had + kPieceBytes);
    sockaddr_nl from{};
    socklen_t fromBytes = sizeof from;
    ssize_t got = recvfrom(socket.get(), answer->data() + had, kPieceBytes, 0,
                           reinterpret_cast<sockaddr*>(&from), &fromBytes);
    int code = errno;
    bool isKernels = got > 0 && from.nl_pid == 0;
    answer->resize(had + (isKernels ? static_cast<size_t>(got) : 0));
    if (got == 0) return -EIO;
    if (got < 0 && code != EINTR) return -code;
    if (isKernels) ended = isEnd(answer->data() + had, static_cast<size_t>(got));
  }
  return 0;
}

}  // namespace cinnabar::verbs
