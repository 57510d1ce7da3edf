// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace cinnabar::tcp {

/// The keys of a port's memory that transfers of peers use at this moment. The provider looks at a
/// key once, when the header of a transfer comes. After that the transfer goes on until the last
/// byte, even if the key has been withdrawn meanwhile.
class KeysInUse {
 public:
  void begin(uint64_t key);
  void end(uint64_t key);
  bool has(uint64_t key) const;

 private:
  mutable std::mutex mutex_;
  std::unordered_map<uint64_t, uint32_t> uses_;
};

/// The keys of one transfer: one of each extent.
struct TransferKeys {
  static constexpr size_t kMost = 4;
  std::array<uint64_t, kMost> keys{};
  uint8_t count = 0;
};

/// The keys in use by the transfers of one connection: the incoming write, and the reads without a
/// whole answer. The provider answers reads in order.
class ConnectionKeys {
 public:
  ConnectionKeys() = default;
  ConnectionKeys(const ConnectionKeys&) = delete;
  ConnectionKeys& operator=(const ConnectionKeys&) = delete;
  ~ConnectionKeys() { clear(); }

  /// Where they are counted. Nothing is noted without.
  void countIn(KeysInUse* all) { all_ = all; }
  /// The connection is gone, and its transfers with it.
  void clear();

  void beginWrite(const TransferKeys& keys);
  /// The incoming message has ended; it may have been a write.
  void endWrite();
  void beginRead(const TransferKeys& keys);
  /// Reads without a whole answer.
  size_t reads() const { return reads_.size() - firstRead_; }
  void endRead();
  bool uses(uint64_t key) const;

 private:
  void begin(const TransferKeys& keys);
  void end(const TransferKeys& keys);

  KeysInUse* all_ = nullptr;
  TransferKeys write_;
  std::vector<TransferKeys> reads_;  // from `firstRead_` on
  size_t firstRead_ = 0;
};

}  // namespace cinnabar::tcp
