// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <unistd.h>

#include <chrono>
#include <cstring>
#include <initializer_list>
#include <string>
#include <vector>

#include "engine/port.h"

namespace cinnabar::test {

constexpr auto kDeadline = std::chrono::seconds(20);

/// Loads libfabric for the tests that need it; false where the machine has none.
bool haveLibfabric();

/// A port name that no other run of the tests on this machine has.
inline std::string own(const std::string& name) { return name + "." + std::to_string(getpid()); }

/// A port with its memory, and its completions as a list.
struct TestPort {
  static constexpr uint32_t kSlotBytes = 16384;

  explicit TestPort(fabric::Scheme scheme, const std::string& name = "", uint32_t sendSlots = 32,
                    uint32_t receiveSlots = 32, uint32_t slotBytes = kSlotBytes)
      : slab(size_t{slotBytes} * (sendSlots + receiveSlots)),
        ring(engine::kRingBytes / sizeof(uint32_t)) {
    request.scheme = scheme;
    request.name = name;
    if (scheme == fabric::Scheme::tcp) request.host = "127.0.0.1";
    request.slab = slab.data();
    request.slotBytes = slotBytes;
    request.sendSlots = sendSlots;
    request.receiveSlots = receiveSlots;
    request.ring = ring.data();
  }

  bool open() {
    auto opened = engine::Port::open(request);
    if (opened) {
      port = std::move(*opened);
    } else {
      failure = opened.failure();
    }
    return port != nullptr;
  }

  int admit(const TestPort& other) {
    fabric::RawAddress address = other.port->address();
    return port->admit(address.data(), address.size());
  }

  uint8_t* slot(uint32_t index) { return slab.data() + size_t{index} * request.slotBytes; }

  /// Fills a send slot with a pattern and sends it.
  int sendPattern(int address, uint32_t index, size_t bytes, uint8_t seed) {
    for (size_t i = 0; i < bytes; ++i) slot(index)[i] = static_cast<uint8_t>(seed + i * 7);
    return port->send(static_cast<uint32_t>(address), uint64_t{index} * request.slotBytes, bytes);
  }

  /// A transfer of one extent.
  int transfer(transport::Operation::Type type, int address, uint32_t region, uint64_t offset,
               uint64_t bytes, uint64_t key, uint64_t remote, uint32_t token) {
    transport::Extent extent{region, offset, bytes, key, remote};
    return port->transfer(type, static_cast<uint32_t>(address), &extent, 1, token);
  }

  /// Runs progress and moves what the ring holds to `entries`; messages' bytes to `messages`.
  void turn() {
    if (!port) return;
    port->progress(0);
    uint32_t head = ring[1];
    for (; head != ring[0]; ++head) {
      const uint32_t* words =
          ring.data() + engine::kHeaderWords + (head % engine::kRingEntries) * engine::kEntryWords;
      engine::Entry entry{static_cast<engine::Completion>(words[0]),
                          words[1],
                          words[2],
                          words[3],
                          words[4],
                          words[5]};
      entries.push_back(entry);
      if (entry.kind == engine::Completion::message && entry.status == 0) {
        messages.emplace_back(slab.data() + entry.token, slab.data() + entry.token + entry.bytes);
      }
    }
    ring[1] = head;
  }

  /// The send slot that an entry gives back, or a number that none has. A message that was taken
  /// out of its slot has another token when it is sent.
  uint32_t freedSlot(const engine::Entry& entry) const {
    bool frees = entry.kind == engine::Completion::sent || entry.kind == engine::Completion::parked;
    return frees && entry.token < slab.size() ? entry.token / request.slotBytes : UINT32_MAX;
  }

  size_t count(engine::Completion kind) const {
    size_t n = 0;
    for (const auto& entry : entries) n += entry.kind == kind;
    return n;
  }
  const engine::Entry* last(engine::Completion kind) const {
    for (size_t i = entries.size(); i-- > 0;) {
      if (entries[i].kind == kind) return &entries[i];
    }
    return nullptr;
  }

  std::vector<uint8_t> slab;
  std::vector<uint32_t> ring;
  engine::PortRequest request;
  std::unique_ptr<engine::Port> port;
  fabric::Failure failure;
  std::vector<engine::Entry> entries;
  std::vector<std::vector<uint8_t>> messages;
};

/// Turns the ports until the condition holds or the deadline passes.
template <typename F>
bool eventually(std::initializer_list<TestPort*> ports, F&& condition) {
  auto end = std::chrono::steady_clock::now() + kDeadline;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    for (TestPort* port : ports) port->turn();
  }
  return true;
}

inline bool isPattern(const std::vector<uint8_t>& bytes, uint8_t seed) {
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] != static_cast<uint8_t>(seed + i * 7)) return false;
  }
  return true;
}

}  // namespace cinnabar::test
