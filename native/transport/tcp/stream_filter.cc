// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "transport/tcp/stream_filter.h"

#include <arpa/inet.h>

namespace cinnabar::tcp {
namespace {

// XNET_CTRL_HDR_VERSION, XNET_HDR_VERSION
constexpr uint8_t kControlVersion = 3;
constexpr uint8_t kHeaderVersion = 3;

// ofi_ctrl_connreq, ofi_ctrl_connresp, ofi_ctrl_nack
constexpr uint8_t kRequestType = 0;
constexpr uint8_t kResponseType = 1;
constexpr uint8_t kRefusalType = 6;

// In a byte of a refusal that the provider leaves 0 and does not read (xnet_rdm_cm.resv).
constexpr uint8_t kLackOfDescriptors = 24;

// enum xnet_op. The others are not used here: we post no tagged messages.
constexpr uint8_t kMessage = 0;
constexpr uint8_t kReadRequest = 2;
constexpr uint8_t kReadResponse = 3;
constexpr uint8_t kWrite = 4;

constexpr uint8_t kAcknowledgement = 2;  // XNET_OP_ACK

// Flags of a header.
constexpr uint16_t kHasData = 1 << 0;
constexpr uint16_t kWantsAcknowledgement = 1 << 2;
constexpr uint16_t kWantsCommit = 1 << 3;  // to persistent memory; never asked for here

constexpr size_t kDataBytes = sizeof(uint64_t);
constexpr size_t kRunBytes = 3 * sizeof(uint64_t);  // struct ofi_rma_iov: address, length, key
constexpr size_t kMostRuns = 4;                     // XNET_IOV_LIMIT

/// Bytes of the runs that stand in a header from `offset` on; false if there are too many.
bool sumOf(const Header& header, size_t offset, uint64_t* sum) {
  *sum = 0;
  for (size_t run = 0; run < header.runs(); ++run) {
    auto bytes = header.at<uint64_t>(offset + run * kRunBytes + sizeof(uint64_t));
    if (bytes > UINT64_MAX - *sum) return false;
    *sum += bytes;
  }
  return true;
}

}  // namespace

bool ControlMessage::take(const uint8_t* bytes, size_t length, bool isRequest) {
  if (length > bytes_.size() - have_) return false;
  std::memcpy(bytes_.data() + have_, bytes, length);
  have_ += length;
  if (have_ < kControlBytes) return true;
  uint16_t dataBytes;
  uint64_t order;
  std::memcpy(&dataBytes, bytes_.data() + 2, sizeof dataBytes);
  std::memcpy(&order, bytes_.data() + 24, sizeof order);
  if (bytes_[0] != kControlVersion || ntohs(dataBytes) != kControlDataBytes) return false;
  if (!isRequest && isRefusal()) return true;
  // 1 in the order of the bytes that both sides have: the headers are then read as they come.
  return bytes_[1] == (isRequest ? kRequestType : kResponseType) && order == 1;
}

bool ControlMessage::isRefusal() const { return bytes_[1] == kRefusalType; }

uint16_t ControlMessage::listeningPort() const {
  uint16_t port;
  std::memcpy(&port, bytes_.data() + kControlBytes + 2, sizeof port);
  return port;
}

bool ControlMessage::lacksDescriptors() const {
  return isRefusal() && bytes_[kControlBytes + 1] == kLackOfDescriptors;
}

std::array<uint8_t, kControlBytes + kControlDataBytes> ControlMessage::refusal() {
  std::array<uint8_t, kControlBytes + kControlDataBytes> bytes{};
  bytes[0] = kControlVersion;
  bytes[1] = kRefusalType;
  uint16_t dataBytes = htons(kControlDataBytes);
  std::memcpy(bytes.data() + 2, &dataBytes, sizeof dataBytes);
  return bytes;
}

std::array<uint8_t, kControlBytes + kControlDataBytes> ControlMessage::lackOfDescriptors() {
  auto bytes = refusal();
  bytes[kControlBytes + 1] = kLackOfDescriptors;
  return bytes;
}

bool StreamFilter::isGood(const Header& header) {
  if (header.version() != kHeaderVersion || (header.flags() & kWantsCommit) != 0) return false;
  present_ = 0;
  size_t before = kLeastHeaderBytes + ((header.flags() & kHasData) != 0 ? kDataBytes : 0);
  switch (header.operation()) {
    case kMessage:
      return isGoodMessage(header);
    case kReadRequest:
      return header.runs() >= 1 && header.runs() <= kMostRuns &&
             header.headerBytes() == kLeastHeaderBytes + header.runs() * kRunBytes &&
             header.size() == header.headerBytes();
    case kReadResponse:
      if (responses_ == 0 || header.headerBytes() != kLeastHeaderBytes) return false;
      --responses_;
      return true;
    case kWrite: {
      uint64_t sum = 0;
      return header.runs() >= 1 && header.runs() <= kMostRuns &&
             header.headerBytes() == before + header.runs() * kRunBytes &&
             sumOf(header, before, &sum) && sum == header.size() - header.headerBytes();
    }
    default:
      return false;
  }
}

bool StreamFilter::isGoodMessage(const Header& header) {
  if (header.detail() == kAcknowledgement) {
    if (acknowledgements_ == 0 || header.size() != kLeastHeaderBytes) return false;
    --acknowledgements_;
    return true;
  }
  present_ = ++messages_;
  return header.headerBytes() ==
         kLeastHeaderBytes + ((header.flags() & kHasData) != 0 ? kDataBytes : 0);
}

/// The header of a transfer has come, which the provider will look at.
void StreamFilter::noteKeys(const Header& header) {
  bool isWrite = header.operation() == kWrite;
  if (!isWrite && header.operation() != kReadRequest) return;
  static_assert(TransferKeys::kMost == kMostRuns);
  size_t before = kLeastHeaderBytes;
  if (isWrite && (header.flags() & kHasData) != 0) before += kDataBytes;
  TransferKeys keys;
  keys.count = header.runs();
  for (size_t run = 0; run < keys.count; ++run)
    keys.keys[run] = header.at<uint64_t>(before + run * kRunBytes + 2 * sizeof(uint64_t));
  isWrite ? keys_->beginWrite(keys) : keys_->beginRead(keys);
}

void StreamFilter::onSent(const uint8_t* bytes, size_t length) {
  // The provider awaits an answer once the whole question has left.
  auto note = [this](const Header& header) {
    bool isRequest = header.operation() == kReadRequest;
    bool isAcknowledged = (header.flags() & kWantsAcknowledgement) != 0;
    isAnswering_ = header.operation() == kReadResponse;
    // A response repeats the flags of its request.
    if (isAnswering_) isAcknowledged = false;
    asks_ = isRequest ? Asks::data : isAcknowledged ? Asks::acknowledgement : Asks::nothing;
    return true;
  };
  auto count = [this] {
    if (asks_ == Asks::acknowledgement) ++acknowledgements_;
    if (asks_ == Asks::data) ++responses_;
    asks_ = Asks::nothing;
    if (isAnswering_ && keys_ != nullptr) keys_->endRead();
    isAnswering_ = false;
  };
  out_.walk(bytes, length, note, count);
}

}  // namespace cinnabar::tcp
