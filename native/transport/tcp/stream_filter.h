// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "transport/tcp/keys_in_use.h"

namespace cinnabar::tcp {

// The stream that libfabric's native tcp provider speaks (xnet_proto.h, ofi_proto.h): a control
// message in each direction, then messages with a header each.
constexpr size_t kControlBytes = 32;      // struct ofi_ctrl_hdr
constexpr size_t kControlDataBytes = 8;   // struct xnet_rdm_cm
constexpr size_t kLeastHeaderBytes = 16;  // struct xnet_base_hdr
constexpr size_t kMostHeaderBytes = 120;  // that, data, and four extents

/// The kind of a control message.
enum class Control : uint8_t { request, response, refusal };

/// The control message at the start of a connection, as far as it has come.
class ControlMessage {
 public:
  /// Takes bytes; false if no message of the provider begins with them.
  bool take(const uint8_t* bytes, size_t length, bool isRequest);
  bool isWhole() const { return have_ == kControlBytes + kControlDataBytes; }
  bool isRefusal() const;
  /// The port at which the other side listens, in the order of the network.
  uint16_t listeningPort() const;
  /// The other side has no descriptor for the connection. The provider never reports that.
  bool lacksDescriptors() const;
  /// What the provider says to one of two that connect to each other at once.
  static std::array<uint8_t, kControlBytes + kControlDataBytes> refusal();
  /// What this side says when it has no descriptor.
  static std::array<uint8_t, kControlBytes + kControlDataBytes> lackOfDescriptors();

 private:
  std::array<uint8_t, kControlBytes + kControlDataBytes> bytes_{};
  size_t have_ = 0;
};

/// The header of a message, once it has come whole.
struct Header {
  const uint8_t* bytes;

  uint8_t version() const { return bytes[0]; }
  uint8_t operation() const { return bytes[1]; }
  uint16_t flags() const { return at<uint16_t>(2); }
  uint8_t detail() const { return bytes[4]; }
  uint8_t runs() const { return bytes[5]; }
  uint8_t headerBytes() const { return bytes[6]; }
  /// Bytes of the message, header included.
  uint64_t size() const { return at<uint64_t>(8); }

  template <typename T>
  T at(size_t offset) const {
    T value;
    std::memcpy(&value, bytes + offset, sizeof value);
    return value;
  }
};

/// Follows the messages of a stream, however it is cut into pieces.
class MessageWalk {
 public:
  /// Calls `judge(header)` for each whole header, and `onEnd` at the end of each message. Returns
  /// how many bytes lie before the first header that is malformed or that `judge` rejects: `length`
  /// if all are good.
  template <typename Judge, typename OnEnd>
  size_t walk(const uint8_t* bytes, size_t length, Judge&& judge, OnEnd&& onEnd) {
    size_t start = 0;  // of the present header
    for (size_t at = 0; at < length;) {
      if (payload_ > 0) {
        auto passed = static_cast<size_t>(std::min<uint64_t>(payload_, length - at));
        at += passed;
        payload_ -= passed;
        if (payload_ == 0) onEnd();
        continue;
      }
      if (have_ == 0) start = at;
      size_t passed = std::min<size_t>(need_ - have_, length - at);
      std::memcpy(header_.data() + have_, bytes + at, passed);
      have_ += static_cast<uint8_t>(passed);
      at += passed;
      if (have_ < need_) break;
      Header header{header_.data()};
      if (have_ == kLeastHeaderBytes) {
        size_t all = header.headerBytes();
        if (all < kLeastHeaderBytes || all > kMostHeaderBytes) return start;
        need_ = static_cast<uint8_t>(all);
        if (need_ > have_) continue;
      }
      if (header.size() < header.headerBytes() || !judge(header)) return start;
      payload_ = header.size() - header.headerBytes();
      have_ = 0;
      need_ = kLeastHeaderBytes;
      if (payload_ == 0) onEnd();
    }
    return length;
  }

  /// Behind a header and before the end of its payload.
  bool isInside() const { return payload_ > 0; }

 private:
  uint64_t payload_ = 0;  // bytes of the present message that are to come
  uint8_t have_ = 0;      // of the present header
  uint8_t need_ = kLeastHeaderBytes;
  std::array<uint8_t, kMostHeaderBytes> header_{};
};

/// Keeps from the provider what it trusts and should not.
///
/// The provider takes the fields of a header as they come. An unexpected acknowledgement makes it
/// read through a null pointer. Too many extents are written beyond their array. A write with
/// extents shorter than its data is copied to nowhere. So each header is compared with what an
/// honest provider sends, and with what this side has requested.
class StreamFilter {
 public:
  /// Takes bytes that came. Returns how many of them the provider may have: all, unless the stream
  /// is bad.
  size_t onReceived(const uint8_t* bytes, size_t length) {
    moved_ += length;
    auto judge = [this](const Header& header) {
      if (!isGood(header)) return false;
      if (keys_ != nullptr) noteKeys(header);
      return true;
    };
    auto onEnd = [this] {
      if (keys_ != nullptr) keys_->endWrite();
    };
    return in_.walk(bytes, length, judge, onEnd);
  }
  /// The number of the message that has come in part: the provider keeps a receive for it until the
  /// rest has come. 0 without such a message.
  uint64_t heldMessage() const { return in_.isInside() ? present_ : 0; }
  /// The provider has sent these bytes. They show what may be answered.
  void onSent(const uint8_t* bytes, size_t length);

  /// Notes which memory the peer's transfers use.
  void noteKeysIn(ConnectionKeys* keys) { keys_ = keys; }
  /// Bytes of both directions so far.
  uint64_t moved() const { return moved_; }

 private:
  void noteKeys(const Header& header);
  bool isGood(const Header& header);
  bool isGoodMessage(const Header& header);

  MessageWalk in_;
  MessageWalk out_;
  uint64_t messages_ = 0;  // messages that have begun
  uint64_t present_ = 0;   // the number of the one that began last; 0 if it takes no receive
  enum class Asks : uint8_t { nothing, acknowledgement, data } asks_ = Asks::nothing;
  bool isAnswering_ = false;  // the bytes that leave are the answer to a read
  uint64_t moved_ = 0;
  ConnectionKeys* keys_ = nullptr;
  uint32_t acknowledgements_ = 0;  // that the other side owes
  uint32_t responses_ = 0;         // to reads
};

}  // namespace cinnabar::tcp
