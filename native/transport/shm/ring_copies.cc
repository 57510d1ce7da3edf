// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "transport/shm/ring_copies.h"

#include <rdma/fi_errno.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/mapped_file.h"
#include "transport/shm/neighbours.h"

namespace cinnabar::shm {

using transport::Extent;
using transport::Operation;
using transport::RegionTable;

namespace {

Neighbour& neighbourOf(const Operation& operation) {
  return static_cast<Neighbour&>(*operation.peer);
}

bool isRead(const Operation& operation) { return operation.type == Operation::Type::read; }

}  // namespace

void RingCopies::add(Operation& operation) {
  operation.state = Operation::State::moving;
  neighbourOf(operation).exchange.waiting.push(&operation);
  hasWork_ = true;
}

std::vector<Operation*> RingCopies::takeBack(uint32_t address, Neighbour& neighbour) {
  std::vector<Operation*> taken = neighbour.exchange.waiting.takeOut(address);
  for (auto& [id, asked] : neighbour.exchange.asked) {
    if (asked.operation == nullptr || asked.operation->address != address) continue;
    if (std::find(taken.begin(), taken.end(), asked.operation) == taken.end())
      taken.push_back(asked.operation);
    asked.operation = nullptr;
  }
  std::erase_if(over_, [&](const transport::Ended& ended) {
    if (ended.operation->address != address) return false;
    taken.push_back(ended.operation);
    return true;
  });
  return taken;
}

bool RingCopies::take(Neighbour& neighbour, const Record& record) {
  if (record.length < sizeof(CopyHead)) return false;
  CopyHead head;
  memcpy(&head, record.bytes, sizeof head);
  switch (record.kind) {
    case RecordKind::readAsked:
    case RecordKind::writeAsked:
      return takeRequest(neighbour, record, head);
    case RecordKind::readAnswered:
    case RecordKind::writeAnswered:
      return takeAnswer(neighbour, record, head);
    case RecordKind::message:
      break;
  }
  return false;
}

/// 0, or why a peer may not use that memory.
uint32_t RingCopies::refusal(const CopyHead& head, uint64_t access) const {
  KeyRange range;
  if (!keys_.find(head.key, &range)) return FI_ENOKEY;
  if (int code = range.refuses(head.at, head.bytes, access); code != 0)
    return static_cast<uint32_t>(code);
  // The same error as the kernel's copies. Here the lost bytes of a file would be zeros.
  return base::MappedFile::isDamagedAt(reinterpret_cast<const void*>(head.at)) ? EFAULT : 0;
}

bool RingCopies::takeRequest(Neighbour& neighbour, const Record& record, const CopyHead& head) {
  bool isRead = record.kind == RecordKind::readAsked;
  size_t along = record.length - sizeof head;
  if (head.bytes > kRingChunkBytes || along != (isRead ? 0 : head.bytes)) return false;
  if (neighbour.exchange.owed.size() >= kMostAsked) return false;
  RingExchange::Owed owed{head, isRead};
  if (!isRead) {
    owed.head.status = refusal(head, fabric::kRemoteWrite);
    if (owed.head.status == 0)
      memcpy(reinterpret_cast<void*>(head.at), record.bytes + sizeof head, along);
  }
  neighbour.exchange.owed.push_back(owed);
  hasWork_ = true;
  return true;
}

bool RingCopies::takeAnswer(Neighbour& neighbour, const Record& record, const CopyHead& head) {
  auto& exchange = neighbour.exchange;
  auto found = exchange.asked.find(head.id);
  if (found == exchange.asked.end()) return false;
  RingExchange::Asked asked = found->second;
  size_t along = record.length - sizeof head;
  bool hasBytes = asked.local != nullptr && head.status == 0;
  bool isAnswer = (record.kind == RecordKind::readAnswered) == (asked.local != nullptr);
  if (!isAnswer || along != (hasBytes ? asked.bytes : 0)) return false;
  exchange.asked.erase(found);
  hasWork_ = true;
  Operation* operation = asked.operation;
  if (operation == nullptr) return true;
  --operation->parts;
  if (head.status == 0) {
    if (hasBytes) memcpy(asked.local, record.bytes + sizeof head, asked.bytes);
    operation->done += asked.bytes;
  } else if (operation->status == 0) {
    operation->status = head.status;
  }
  bool isAllAsked = operation->extent == operation->extents.size();
  if (operation->parts == 0 && isAllAsked) end(*operation);
  return true;
}

void RingCopies::advance(const std::vector<Neighbour*>& neighbours, const RegionTable& regions,
                         std::vector<transport::Ended>& over) {
  isBlocked_ = false;
  for (Neighbour* neighbour : neighbours) {
    auto& exchange = neighbour->exchange;
    if (!neighbour->isReady() || (exchange.owed.empty() && exchange.waiting.empty())) continue;
    exchange.lacksRoom = !answerAll(*neighbour) || !askAll(*neighbour, regions);
    isBlocked_ = isBlocked_ || exchange.lacksRoom;
    neighbour->doorbell->ring();
  }
  over.insert(over.end(), over_.begin(), over_.end());
  over_.clear();
  hasWork_ = false;
}

/// False if there was no room.
bool RingCopies::answerAll(Neighbour& neighbour) {
  auto& owed = neighbour.exchange.owed;
  size_t answered = 0;
  for (; answered < owed.size(); ++answered) {
    auto [head, isRead] = owed[answered];
    const void* bytes = nullptr;
    size_t along = 0;
    if (isRead) {
      // Here, not at the request: the key may have been withdrawn since.
      head.status = refusal(head, fabric::kRemoteRead);
      if (head.status == 0) {
        bytes = reinterpret_cast<const void*>(head.at);
        along = head.bytes;
      }
    }
    auto kind = isRead ? RecordKind::readAnswered : RecordKind::writeAnswered;
    if (!neighbour.outbound->write(kind, &head, sizeof head, bytes, along)) break;
  }
  owed.erase(owed.begin(), owed.begin() + static_cast<ptrdiff_t>(answered));
  return owed.empty();
}

bool RingCopies::askAll(Neighbour& neighbour, const RegionTable& regions) {
  auto& exchange = neighbour.exchange;
  while (!exchange.waiting.empty() && exchange.asked.size() < kMostAsked) {
    Operation& operation = *exchange.waiting.front();
    // A refused extent ends the operation's moves, so each extent waits for the one before it.
    if (operation.status == 0 && operation.into == 0 && operation.parts > 0) return true;
    if (operation.status == 0 && !ask(neighbour, operation, regions)) return false;
    bool isAllAsked = operation.status != 0 || operation.extent == operation.extents.size();
    if (!isAllAsked) continue;
    exchange.waiting.pop();
    operation.extent = operation.extents.size();
    if (operation.parts == 0) end(operation);
  }
  return true;
}

/// Asks for the next chunk of an operation, or notes why it is refused. False if there was no room.
bool RingCopies::ask(Neighbour& neighbour, Operation& operation, const RegionTable& regions) {
  const Extent& extent = operation.extents[operation.extent];
  KeyRange range;
  operation.status = FI_ENOKEY;
  if (neighbour.keys->find(extent.key, &range))
    operation.status = static_cast<uint32_t>(
        range.refuses(extent.remote, extent.bytes, transport::accessFor(operation)));
  if (operation.status != 0) return true;

  auto bytes =
      static_cast<uint32_t>(std::min<uint64_t>(kRingChunkBytes, extent.bytes - operation.into));
  uint8_t* local = regions.find(extent.region)->bytes() + extent.offset + operation.into;
  CopyHead head{nextId_, extent.key, extent.remote + operation.into, bytes, 0};
  bool reads = isRead(operation);
  auto kind = reads ? RecordKind::readAsked : RecordKind::writeAsked;
  if (!neighbour.outbound->write(kind, &head, sizeof head, local, reads ? 0 : bytes)) return false;
  neighbour.exchange.asked[nextId_++] = {&operation, reads ? local : nullptr, bytes};
  ++operation.parts;
  operation.into += bytes;
  if (operation.into == extent.bytes) {
    ++operation.extent;
    operation.into = 0;
  }
  return true;
}

}  // namespace cinnabar::shm
