// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include <arpa/inet.h>
#include <doctest/doctest.h>

#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "test/mutation.h"
#include "transport/tcp/stream_filter.h"

using namespace cinnabar::tcp;
using cinnabar::test::mutatedMessages;
using cinnabar::test::Random;

namespace {

using Bytes = std::vector<uint8_t>;

constexpr uint8_t kMessage = 0, kTagged = 1, kReadRequest = 2, kReadResponse = 3, kWrite = 4;
constexpr uint16_t kData = 1, kAcknowledged = 4, kCommit = 8;

struct Fields {
  uint8_t operation = kMessage;
  uint16_t flags = 0;
  uint8_t detail = 0;
  std::vector<uint64_t> runs;  // bytes of each
  uint64_t payload = 0;
  int headerBytes = -1;  // what belongs there
  int64_t more = 0;      // in size
  uint8_t version = 3;
};

Bytes streamOf(const Fields& fields) {
  size_t header = 16 + ((fields.flags & kData) != 0 ? 8 : 0) + 24 * fields.runs.size();
  Bytes bytes(header + fields.payload, 0xee);
  std::memset(bytes.data(), 0, 16);
  bytes[0] = fields.version;
  bytes[1] = fields.operation;
  std::memcpy(&bytes[2], &fields.flags, 2);
  bytes[4] = fields.detail;
  bytes[5] = static_cast<uint8_t>(fields.runs.size());
  bytes[6] =
      static_cast<uint8_t>(fields.headerBytes < 0 ? static_cast<int>(header) : fields.headerBytes);
  uint64_t size = header + fields.payload + static_cast<uint64_t>(fields.more);
  std::memcpy(&bytes[8], &size, 8);
  size_t at = 16 + ((fields.flags & kData) != 0 ? 8 : 0);
  for (uint64_t run : fields.runs) {
    std::memcpy(&bytes[at + 8], &run, 8);
    at += 24;
  }
  return bytes;
}

Bytes joined(std::initializer_list<Bytes> parts) {
  Bytes all;
  for (const Bytes& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

const Bytes kAcknowledgement = streamOf({.detail = 2});

bool isGood(StreamFilter& filter, const Bytes& bytes) {
  return filter.onReceived(bytes.data(), bytes.size()) == bytes.size();
}
bool isGood(const Fields& fields) {
  StreamFilter filter;
  return isGood(filter, streamOf(fields));
}
void sent(StreamFilter& filter, const Bytes& bytes) { filter.onSent(bytes.data(), bytes.size()); }

/// A message as an honest provider sends it unasked.
Bytes someMessage(Random& random) {
  Fields fields;
  size_t runs = 1 + random.below(4);
  switch (random.below(3)) {
    case 0:
      fields.payload = random.below(60);
      break;
    case 1:
      fields.operation = kReadRequest;
      for (size_t run = 0; run < runs; ++run) fields.runs.push_back(random.next());
      return streamOf(fields);
    default:
      fields.operation = kWrite;
      for (size_t run = 0; run < runs; ++run) fields.runs.push_back(random.below(30));
      for (uint64_t bytes : fields.runs) fields.payload += bytes;
  }
  if (random.oneIn(2)) fields.flags = kData;
  return streamOf(fields);
}

/// Gives a filter the bytes in pieces, each in memory of its own, so that a sanitizer sees what is
/// read beyond. Returns how many of them pass.
size_t passing(StreamFilter& filter, const Bytes& bytes, Random& random) {
  size_t passed = 0;
  while (passed < bytes.size()) {
    size_t length = std::min<size_t>(1 + random.below(80), bytes.size() - passed);
    auto from = bytes.begin() + static_cast<std::ptrdiff_t>(passed);
    Bytes piece(from, from + static_cast<std::ptrdiff_t>(length));
    size_t good = filter.onReceived(piece.data(), length);
    passed += good;
    if (good < length) break;
  }
  return passed;
}

/// What the provider would do with bytes that it must never get, as its sources have it; or
/// nullptr.
std::string harmOf(const uint8_t* bytes, size_t length) {
  for (size_t at = 0; length - at >= kLeastHeaderBytes;) {
    Header header{bytes + at};
    size_t all = header.headerBytes();
    if (all < kLeastHeaderBytes || all > kMostHeaderBytes)
      return "writes behind the header's place";
    if (length - at < all) return "";
    if (header.size() < all) return "waits for more than there are";
    uint64_t payload = header.size() - all;
    bool isWrite = header.operation() == kWrite;
    if (!isWrite && header.operation() != kReadRequest && header.operation() != kMessage)
      return "takes an answer to nothing, or an operation that nobody asks for";
    if (header.operation() == kMessage && header.detail() == 2) return "reads through null";
    if (header.operation() != kMessage) {
      size_t before = kLeastHeaderBytes + (isWrite && (header.flags() & kData) != 0 ? 8 : 0);
      if (header.runs() > 4) return "writes behind the place of its runs";
      if (header.runs() == 0 || all != before + 24 * header.runs())
        return "reads runs from elsewhere";
      uint64_t sum = 0;
      for (size_t run = 0; isWrite && run < header.runs(); ++run)
        if (__builtin_add_overflow(sum, header.at<uint64_t>(before + run * 24 + 8), &sum))
          return "copies more than there is";
      if (isWrite && sum != payload) return "copies to nowhere";
    }
    if (payload > length - at - all) return "";
    at += all + payload;
  }
  return "";
}

Bytes control(uint8_t type, uint16_t dataBytes = 8, uint64_t order = 1, uint8_t version = 3) {
  Bytes bytes(40);
  bytes[0] = version;
  bytes[1] = type;
  uint16_t length = htons(dataBytes);
  std::memcpy(&bytes[2], &length, 2);
  std::memcpy(&bytes[24], &order, 8);
  uint16_t port = htons(4711);
  std::memcpy(&bytes[34], &port, 2);
  return bytes;
}

}  // namespace

TEST_SUITE("tcp streams") {
  TEST_CASE("hold a receive while a message has come in part") {
    StreamFilter filter;
    Bytes first = streamOf({.payload = 100});
    Bytes second = streamOf({.payload = 10});
    auto take = [&](const Bytes& bytes, size_t from, size_t to) {
      REQUIRE(filter.onReceived(bytes.data() + from, to - from) == to - from);
      return filter.heldMessage();
    };
    CHECK(take(first, 0, 16) == 1);
    CHECK(take(first, 16, 90) == 1);
    CHECK(take(first, 90, 116) == 0);
    // Two messages in one piece: the second counts once its header is whole.
    CHECK(take(joined({first, second}), 0, 130) == 0);
    CHECK(take(second, 14, 18) == 3);
    CHECK(take(second, 18, 26) == 0);
    // Memory that is written takes none.
    Bytes write = streamOf({.operation = kWrite, .runs = {100}, .payload = 100});
    CHECK(take(write, 0, 60) == 0);
    CHECK(take(write, 60, write.size()) == 0);
  }

  TEST_CASE("of an honest peer pass, however they are cut") {
    Bytes all = joined({streamOf({.payload = 100}), streamOf({.flags = kData, .payload = 3}),
                        streamOf({.operation = kWrite, .runs = {7, 0, 30}, .payload = 37}),
                        streamOf({.operation = kWrite,
                                  .flags = kData | kAcknowledged,
                                  .runs = {1000, 1, 2, 3},
                                  .payload = 1006}),
                        streamOf({.operation = kReadRequest, .runs = {1u << 30}}), streamOf({})});
    for (size_t step : {1u, 2u, 7u, 16u, 17u, 100u, 5000u}) {
      CAPTURE(step);
      StreamFilter filter;
      for (size_t at = 0; at < all.size(); at += step) {
        size_t bytes = std::min(step, all.size() - at);
        REQUIRE(filter.onReceived(all.data() + at, bytes) == bytes);
      }
    }
  }

  TEST_CASE("with an acknowledgement that nobody awaits do not pass") {
    StreamFilter filter;
    CHECK_FALSE(isGood(filter, kAcknowledgement));
    StreamFilter asking;
    sent(asking,
         streamOf({.operation = kWrite, .flags = kAcknowledged, .runs = {5}, .payload = 5}));
    CHECK(isGood(asking, kAcknowledgement));
    CHECK_FALSE(isGood(asking, kAcknowledgement));
  }

  TEST_CASE("may answer what has left to its end, and no sooner") {
    Bytes asked =
        streamOf({.operation = kWrite, .flags = kAcknowledged, .runs = {50}, .payload = 50});
    StreamFilter early;
    early.onSent(asked.data(), asked.size() - 1);
    CHECK_FALSE(isGood(early, kAcknowledgement));
    StreamFilter late;
    late.onSent(asked.data(), asked.size() - 1);
    late.onSent(asked.data() + asked.size() - 1, 1);
    CHECK(isGood(late, kAcknowledgement));
  }

  TEST_CASE("answer each read once") {
    StreamFilter filter;
    Bytes answer = streamOf({.operation = kReadResponse, .payload = 64});
    CHECK_FALSE(isGood(filter, answer));
    StreamFilter asking;
    sent(asking, streamOf({.operation = kReadRequest, .runs = {64}}));
    sent(asking, streamOf({.operation = kReadRequest, .runs = {64}}));
    CHECK(isGood(asking, joined({answer, answer})));
    CHECK_FALSE(isGood(asking, answer));
  }

  TEST_CASE("pass up to the header that is bad") {
    Bytes good = streamOf({.payload = 20});
    Bytes all = joined({good, streamOf({.operation = kTagged}), good});
    StreamFilter filter;
    CHECK(filter.onReceived(all.data(), all.size()) == good.size());
    // A header that came in pieces: what is still missing of it does not pass.
    StreamFilter cut;
    REQUIRE(cut.onReceived(all.data(), good.size() + 10) == good.size() + 10);
    CHECK(cut.onReceived(all.data() + good.size() + 10, 30) == 0);
  }

  TEST_CASE("with headers that no provider sends do not pass") {
    CHECK_FALSE(isGood({.version = 2}));
    CHECK_FALSE(isGood({.operation = kTagged}));
    for (uint8_t operation : {5, 6, 7, 8, 200}) CHECK_FALSE(isGood({.operation = operation}));
    CHECK_FALSE(isGood({.flags = kCommit}));
    CHECK_FALSE(isGood({.flags = kCommit, .payload = 4}));
    // Shorter than its header, or a header of an invalid length.
    CHECK_FALSE(isGood({.more = -1}));
    for (int bytes : {0, 15, 17, 24, 121, 255})
      CHECK_FALSE(isGood({.payload = 300, .headerBytes = bytes}));
    CHECK_FALSE(isGood({.detail = 2, .payload = 1}));
    // More runs than the provider has room for, none, or others than the data.
    CHECK_FALSE(isGood({.operation = kReadRequest, .runs = {}}));
    CHECK_FALSE(isGood({.operation = kReadRequest, .runs = {1}, .payload = 1}));
    CHECK_FALSE(isGood({.operation = kWrite, .runs = {}, .payload = 10}));
    CHECK_FALSE(isGood({.operation = kWrite, .runs = {10}, .payload = 11}));
    CHECK_FALSE(isGood({.operation = kWrite, .runs = {UINT64_MAX, 11}, .payload = 10}));
    Bytes five = streamOf({.operation = kReadRequest, .runs = {1, 1, 1, 1}});
    five[5] = 5;
    StreamFilter filter;
    CHECK_FALSE(isGood(filter, five));
  }

  TEST_CASE("of mutated messages pass as far as the provider takes no harm") {
    Random random(7);
    long changed = 0, stopped = 0;
    for (long round = mutatedMessages(); round > 0; --round) {
      Bytes first = someMessage(random), second = someMessage(random);
      Bytes all = joined({first, second});
      StreamFilter honest;
      if (passing(honest, all, random) != all.size())
        FAIL("round " << round << ": honest bytes stop");
      // Mostly in the headers.
      Bytes mutated = first;
      random.mutate(mutated, random.oneIn(4) ? mutated.size() : mutated[6]);
      if (random.oneIn(8)) random.mutate(mutated, mutated.size());
      mutated.insert(mutated.end(), second.begin(), second.end());
      StreamFilter filter;
      size_t passed = passing(filter, mutated, random);
      changed += mutated != all;
      stopped += passed < mutated.size();
      std::string harm = harmOf(mutated.data(), passed);
      if (!harm.empty()) FAIL("round " << round << ": the provider " << harm);
    }
    MESSAGE(stopped << " of " << changed << " changed streams were stopped");
    CHECK(stopped > changed / 4);
  }
}

TEST_SUITE("tcp control messages") {
  TEST_CASE("tell where the other side listens") {
    ControlMessage request;
    Bytes bytes = control(0);
    REQUIRE(request.take(bytes.data(), 32, true));
    CHECK_FALSE(request.isWhole());
    REQUIRE(request.take(bytes.data() + 32, 8, true));
    CHECK(request.isWhole());
    CHECK(ntohs(request.listeningPort()) == 4711);
  }

  TEST_CASE("are no others' protocols, orders of bytes or lengths") {
    auto takes = [](const Bytes& bytes, bool isRequest) {
      ControlMessage message;
      return message.take(bytes.data(), bytes.size(), isRequest);
    };
    CHECK(takes(control(0), true));
    CHECK(takes(control(1), false));
    CHECK(takes(control(6, 8, 0), false));
    CHECK_FALSE(takes(control(1), true));
    CHECK_FALSE(takes(control(6), true));
    CHECK_FALSE(takes(control(0), false));
    CHECK_FALSE(takes(control(0, 8, 1, 4), true));
    CHECK_FALSE(takes(control(0, 256), true));
    CHECK_FALSE(takes(control(0, 0), true));
    CHECK_FALSE(takes(control(0, 8, uint64_t{1} << 56), true));
  }

  TEST_CASE("that are mutated are taken as far as they have room") {
    Random random(8);
    for (long round = mutatedMessages() / 10; round > 0; --round) {
      Bytes bytes = control(static_cast<uint8_t>(random.oneIn(2) ? 0 : 1));
      for (uint32_t times = random.below(4); times > 0; --times) random.mutate(bytes, bytes.size());
      bool isRequest = random.oneIn(2);
      ControlMessage message;
      size_t taken = 0;
      bool isGood = true;
      while (isGood && taken < bytes.size()) {
        size_t length = std::min<size_t>(1 + random.below(45), bytes.size() - taken);
        auto from = bytes.begin() + static_cast<std::ptrdiff_t>(taken);
        Bytes piece(from, from + static_cast<std::ptrdiff_t>(length));
        isGood = message.take(piece.data(), length, isRequest);
        if (isGood) taken += length;
      }
      if (taken > kControlBytes + kControlDataBytes) FAIL("round " << round << ": too many bytes");
      bool isHonest = bytes[0] == 3 && bytes.size() >= 2 &&
                      (bytes[1] == (isRequest ? 0 : 1) || (!isRequest && bytes[1] == 6));
      if (isGood && message.isWhole() && !isHonest)
        FAIL("round " << round << ": of another protocol");
    }
  }

  TEST_CASE("say when there is no descriptor, and the provider's refusals do not") {
    auto said = ControlMessage::lackOfDescriptors();
    ControlMessage ours;
    REQUIRE(ours.take(said.data(), said.size(), false));
    CHECK(ours.isRefusal());
    CHECK(ours.lacksDescriptors());
    Bytes theirs = control(6);
    ControlMessage provider;
    REQUIRE(provider.take(theirs.data(), theirs.size(), false));
    CHECK(provider.isRefusal());
    CHECK_FALSE(provider.lacksDescriptors());
  }
}
