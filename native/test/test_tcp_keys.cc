// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include <doctest/doctest.h>

#include <cstring>
#include <initializer_list>
#include <vector>

#include "transport/tcp/stream_filter.h"

using namespace cinnabar::tcp;

namespace {

using KeyBytes = std::vector<uint8_t>;

constexpr size_t kRun = 100;  // bytes of each run

/// A message of the provider's stream that moves memory: 2 asks for it, 3 answers, 4 writes.
KeyBytes transferOf(uint8_t operation, std::initializer_list<uint64_t> keys, size_t payload) {
  KeyBytes bytes(16 + 24 * keys.size() + payload);
  bytes[0] = 3;
  bytes[1] = operation;
  bytes[5] = static_cast<uint8_t>(keys.size());
  bytes[6] = static_cast<uint8_t>(16 + 24 * keys.size());
  uint64_t size = bytes.size();
  std::memcpy(&bytes[8], &size, 8);
  size_t at = 16;
  for (uint64_t key : keys) {
    uint64_t run = kRun;
    std::memcpy(&bytes[at + 8], &run, 8);
    std::memcpy(&bytes[at + 16], &key, 8);
    at += 24;
  }
  return bytes;
}
KeyBytes writeOf(std::initializer_list<uint64_t> keys) {
  return transferOf(4, keys, kRun * keys.size());
}

struct Stream {
  explicit Stream(KeysInUse& all) {
    keys.countIn(&all);
    filter.noteKeysIn(&keys);
  }
  void receive(const KeyBytes& bytes, size_t from, size_t until) {
    REQUIRE(filter.onReceived(bytes.data() + from, until - from) == until - from);
  }
  void receive(const KeyBytes& bytes) { receive(bytes, 0, bytes.size()); }
  void send(const KeyBytes& bytes) { filter.onSent(bytes.data(), bytes.size()); }

  ConnectionKeys keys;
  StreamFilter filter;
};

}  // namespace

TEST_CASE("the keys of a write are in use from its header to its last byte") {
  KeysInUse all;
  Stream stream(all);
  KeyBytes bytes = writeOf({7, 8});
  stream.receive(bytes, 0, 63);
  CHECK_FALSE(all.has(7));
  stream.receive(bytes, 63, 64);
  CHECK(all.has(7));
  CHECK(all.has(8));
  CHECK_FALSE(all.has(9));
  CHECK(stream.keys.uses(8));
  stream.receive(bytes, 64, bytes.size() - 1);
  CHECK(all.has(7));
  stream.receive(bytes, bytes.size() - 1, bytes.size());
  CHECK_FALSE(all.has(7));
  CHECK_FALSE(all.has(8));
}

TEST_CASE("the keys of a read are in use until it is answered, and reads are answered in turn") {
  KeysInUse all;
  Stream stream(all);
  stream.receive(transferOf(2, {1}, 0));
  stream.receive(transferOf(2, {2, 3}, 0));
  // What comes beside does not count.
  stream.receive(writeOf({5}));
  KeyBytes first = transferOf(3, {}, kRun);
  stream.filter.onSent(first.data(), 50);
  CHECK(all.has(1));
  stream.filter.onSent(first.data() + 50, first.size() - 50);
  CHECK_FALSE(all.has(1));
  CHECK(all.has(2));
  CHECK(all.has(3));
  stream.send(transferOf(3, {}, 2 * kRun));
  CHECK_FALSE(all.has(2));
  CHECK_FALSE(stream.keys.uses(3));
}

TEST_CASE("a key is in use as long as one connection uses it") {
  KeysInUse all;
  KeyBytes bytes = writeOf({7});
  {
    Stream one(all);
    Stream other(all);
    one.receive(bytes, 0, 50);
    other.receive(bytes, 0, 60);
    one.receive(bytes, 50, bytes.size());
    CHECK(all.has(7));
    CHECK(other.keys.uses(7));
    CHECK_FALSE(one.keys.uses(7));
    CHECK(one.filter.moved() > other.filter.moved());
    other.receive(transferOf(4, {}, 0), 0, 0);
  }
  // Both are gone.
  CHECK_FALSE(all.has(7));
}

TEST_CASE("a connection that nobody counts notes nothing") {
  ConnectionKeys keys;
  TransferKeys one{{7}, 1};
  keys.beginWrite(one);
  keys.beginRead(one);
  CHECK_FALSE(keys.uses(7));
  keys.endRead();
  keys.clear();
}
