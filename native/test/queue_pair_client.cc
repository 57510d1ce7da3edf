// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "test/queue_pair_client.h"

#include <rdma/fi_cm.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>

#include <dlfcn.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <sstream>

#include "fabric/address.h"
#include "fabric/info.h"
#include "fabric/linkage.h"
#include "fabric/signals.h"
#include "test/child.h"
#include "test/harness.h"

namespace cinnabar::test {
namespace {

constexpr size_t kMostPosted = 160;

/// The beginning of struct rdma_conn_param.
struct ConnectParameters {
  const void* privateData;
  uint8_t privateBytes;
};

int (*connectOfLibrary)(void* id, ConnectParameters* parameters) = nullptr;
std::optional<std::vector<uint8_t>> privateDataOfNext;

/// Replaces rdma_connect.
int connectWithPrivateData(void* id, ConnectParameters* parameters) {
  if (privateDataOfNext) {
    parameters->privateData = privateDataOfNext->data();
    parameters->privateBytes = static_cast<uint8_t>(privateDataOfNext->size());
  }
  return connectOfLibrary(id, parameters);
}

/// libfabric calls rdma_connect later, as it reads that the route is known.
void sendPrivateData(const std::optional<std::vector<uint8_t>>& bytes) {
  privateDataOfNext = bytes;
  if (!bytes || connectOfLibrary != nullptr) return;
  void* library = dlopen("librdmacm.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  if (library == nullptr) return;
  connectOfLibrary = reinterpret_cast<decltype(connectOfLibrary)>(dlsym(library, "rdma_connect"));
  fabric::replaceInLibfabric("rdma_connect", reinterpret_cast<void*>(connectWithPrivateData));
}

}  // namespace

fabric::Result<std::unique_ptr<QueuePairClient>> QueuePairClient::open(const QueuePairPlace& place,
                                                                       uint16_t port) {
  const fabric::Library& library = *fabric::library();
  std::unique_ptr<QueuePairClient> made(new QueuePairClient());
  auto source = fabric::encodeSocketAddress(place.source, 0);
  fabric::InfoPtr hints(library.dupinfo(nullptr), fabric::InfoDeleter{&library});
  hints->fabric_attr->prov_name = strdup(place.provider.c_str());
  hints->ep_attr->type = FI_EP_MSG;
  hints->caps = FI_MSG | FI_RMA;
  hints->domain_attr->mr_mode = fabric::servedRegistration();
  hints->addr_format = FI_SOCKADDR_IN;
  hints->src_addr = malloc(source->size());
  memcpy(hints->src_addr, source->data(), source->size());
  hints->src_addrlen = source->size();
  fi_info* info = nullptr;
  int status = 0;
  {
    fabric::SignalKeeper keeper;
    uint32_t api =
        std::min<uint32_t>(library.loadedVersion, FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION));
    status = library.getinfo(api, place.host.c_str(), std::to_string(port).c_str(), FI_NUMERICHOST,
                             hints.get(), &info);
  }
  if (status != 0) return library.fail("fi_getinfo", status, "no connected endpoint");
  made->info_ = fabric::InfoPtr(info, fabric::InfoDeleter{&library});
  fid_fabric* fabric = nullptr;
  status = library.fabric(info->fabric_attr, &fabric, nullptr);
  if (status != 0) return library.fail("fi_fabric", status, "");
  made->fabric_.reset(fabric);
  fi_eq_attr ofEvents{};
  ofEvents.wait_obj = FI_WAIT_NONE;
  fid_eq* events = nullptr;
  status = fi_eq_open(fabric, &ofEvents, &events, nullptr);
  if (status != 0) return library.fail("fi_eq_open", status, "");
  made->events_.reset(events);
  fid_domain* domain = nullptr;
  status = fi_domain(fabric, info, &domain, nullptr);
  if (status != 0) return library.fail("fi_domain", status, "");
  made->domain_.reset(domain);
  // Room for what tests post, so that many connections cost little.
  made->info_->tx_attr->size = made->info_->rx_attr->size = kMostPosted;
  return made;
}

QueuePairClient::~QueuePairClient() {
  while (!connections_.empty()) close(connections_.begin()->first);
}

int QueuePairClient::connect(const std::optional<std::vector<uint8_t>>& privateData) {
  Held held;
  fi_cq_attr ofCompletions{};
  ofCompletions.size = 2 * kMostPosted;
  ofCompletions.format = FI_CQ_FORMAT_MSG;
  ofCompletions.wait_obj = FI_WAIT_NONE;
  fid_cq* completions = nullptr;
  int status = fi_cq_open(domain_.get(), &ofCompletions, &completions, nullptr);
  if (status != 0) return status;
  held.completions.reset(completions);
  fid_ep* endpoint = nullptr;
  status = fi_endpoint(domain_.get(), info_.get(), &endpoint, nullptr);
  if (status != 0) return status;
  held.endpoint.reset(endpoint);
  status = fi_ep_bind(endpoint, &events_->fid, 0);
  if (status == 0) status = fi_ep_bind(endpoint, &completions->fid, FI_TRANSMIT | FI_RECV);
  if (status == 0) status = fi_enable(endpoint);
  if (status != 0) return status;
  int number = ++lastConnection_;
  connections_.emplace(number, std::move(held));
  sendPrivateData(privateData);
  status = fi_connect(endpoint, info_->dest_addr, nullptr, 0);
  if (status != 0) {
    connections_.erase(number);
    return status;
  }
  return number;
}

int QueuePairClient::receive(int number, size_t bytes) {
  return post(number, true, std::vector<uint8_t>(bytes));
}

int QueuePairClient::send(int number, const std::vector<uint8_t>& bytes) {
  return post(number, false, bytes);
}

int QueuePairClient::post(int number, bool isReceive, std::vector<uint8_t> bytes) {
  Held& held = connections_.at(number);
  uint64_t token = ++lastWork_;
  Work& work = work_[token];
  work = {isReceive, std::move(bytes), nullptr};
  fid_mr* mr = nullptr;
  int status = fi_mr_reg(domain_.get(), work.bytes.data(), work.bytes.size(), FI_SEND | FI_RECV, 0,
                         ++lastKey_, 0, &mr, nullptr);
  work.mr.reset(mr);
  void* context = reinterpret_cast<void*>(uintptr_t{token});
  if (status == 0) {
    auto* at = work.bytes.data();
    status = static_cast<int>(
        isReceive
            ? fi_recv(held.endpoint.get(), at, work.bytes.size(), fi_mr_desc(mr), 0, context)
            : fi_send(held.endpoint.get(), at, work.bytes.size(), fi_mr_desc(mr), 0, context));
  }
  if (status != 0) {
    work_.erase(token);
    return status;
  }
  return 0;
}

void QueuePairClient::shutDown(int number) {
  fi_shutdown(connections_.at(number).endpoint.get(), 0);
}

void QueuePairClient::close(int number) {
  // What lies in the provider's list of events when an endpoint goes may be taken for a pointer.
  readConnections();
  connections_.erase(number);
}

int QueuePairClient::expose(size_t bytes, uint64_t access) {
  Memory& memory = memories_.emplace_back();
  memory.bytes.resize(bytes);
  fid_mr* mr = nullptr;
  int status =
      fi_mr_reg(domain_.get(), memory.bytes.data(), bytes, access, 0, ++lastKey_, 0, &mr, nullptr);
  if (status != 0) return status;
  memory.mr.reset(mr);
  memory.key = fi_mr_key(mr);
  bool isVirtual = (info_->domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0;
  memory.address = isVirtual ? reinterpret_cast<uint64_t>(memory.bytes.data()) : 0;
  return static_cast<int>(memories_.size() - 1);
}

void QueuePairClient::turn() {
  readConnections();
  for (auto& [number, held] : connections_) readCompletions(held);
}

QueuePairClient::Held* QueuePairClient::heldBy(const fid* endpoint) {
  for (auto& [number, held] : connections_) {
    if (&held.endpoint->fid == endpoint) return &held;
  }
  return nullptr;
}

void QueuePairClient::readConnections() {
  for (;;) {
    alignas(fi_eq_cm_entry) std::array<uint8_t, sizeof(fi_eq_cm_entry) + 512> buffer;
    uint32_t event = 0;
    ssize_t got = fi_eq_read(events_.get(), &event, buffer.data(), buffer.size(), 0);
    if (got == -FI_EAVAIL) {
      fi_eq_err_entry error{};
      fi_eq_readerr(events_.get(), &error, 0);
      Held* held = heldBy(error.fid);
      if (held == nullptr) continue;
      bool wasConnected = held->told->state == State::connected;
      held->told->state = wasConnected ? State::over : State::refused;
      continue;
    }
    if (got < 0) return;
    fi_eq_cm_entry entry;
    memcpy(&entry, buffer.data(), sizeof entry);
    Held* held = heldBy(entry.fid);
    if (held == nullptr) continue;
    if (event == FI_CONNECTED) held->told->state = State::connected;
    if (event == FI_SHUTDOWN) held->told->state = State::over;
  }
}

void QueuePairClient::readCompletions(Held& held) {
  Connection& told = *held.told;
  for (;;) {
    fi_cq_msg_entry entry{};
    ssize_t got = fi_cq_read(held.completions.get(), &entry, 1);
    fi_cq_err_entry error{};
    bool isError = got == -FI_EAVAIL;
    if (isError) got = fi_cq_readerr(held.completions.get(), &error, 0);
    if (got <= 0) return;
    auto token = reinterpret_cast<uintptr_t>(isError ? error.op_context : entry.op_context);
    auto found = work_.find(token);
    if (found == work_.end()) continue;
    auto work = std::move(found->second);
    work_.erase(found);
    if (isError) {
      ++told.failed;
    } else if (work.isReceive) {
      work.bytes.resize(entry.len);
      told.messages.push_back(std::move(work.bytes));
    } else {
      ++told.sent;
    }
  }
}

namespace {

/// What is asked of a client by lines, as another process asks it.
class QueuePairPart {
 public:
  explicit QueuePairPart(QueuePairClient& client) : client_(client) {}

  std::string answer(const std::string& line) {
    std::istringstream words(line);
    std::string what, hex;
    int number = 0;
    size_t offset = 0, count = 0;
    words >> what;
    if (what == "connect") {
      words >> hex;
      return hex.empty() ? connect(std::nullopt) : connect(hex == "-" ? fromHex("") : fromHex(hex));
    }
    if (what == "flood") {
      words >> count;
      return flood(count);
    }
    if (what == "expose") {
      words >> count;
      number = client_.expose(count);
      if (number < 0) return std::to_string(number);
      const auto& memory = client_.memory(number);
      return std::to_string(memory.key) + " " + std::to_string(memory.address);
    }
    words >> number;
    if (what == "withdraw") {
      client_.memory(number).mr.reset();
      return "withdrawn";
    }
    if (what == "peek") {
      words >> offset >> count;
      auto from = client_.memory(number).bytes.begin() + static_cast<std::ptrdiff_t>(offset);
      return toHex({from, from + static_cast<std::ptrdiff_t>(count)});
    }
    if (what == "poke") {
      words >> offset >> hex;
      std::vector<uint8_t> bytes = fromHex(hex);
      std::copy(bytes.begin(), bytes.end(), client_.memory(number).bytes.data() + offset);
      return "poked";
    }
    if (what == "receive") {
      words >> count;
      int status = 0;
      while (status == 0 && count-- > 0) status = client_.receive(number, 4096);
      return std::to_string(status);
    }
    if (what == "send") {
      words >> hex;
      return std::to_string(client_.send(number, fromHex(hex)));
    }
    if (what == "hear") return hear(client_.connection(number));
    if (what == "close") {
      client_.close(number);
      return "closed";
    }
    return "unknown";
  }

 private:
  std::string connect(const std::optional<std::vector<uint8_t>>& privateData) {
    int number = client_.connect(privateData);
    if (number < 0) return std::to_string(number);
    auto& told = client_.connection(number);
    bool isAnswered = wait([&] { return told.state != QueuePairClient::State::connecting; });
    if (!isAnswered) return "silent";
    if (told.state == QueuePairClient::State::connected)
      return "connected " + std::to_string(number);
    client_.close(number);
    return "refused";
  }

  /// Asks for so many connections at once, and lets go of them when all are answered.
  std::string flood(size_t count) {
    std::vector<int> numbers;
    for (size_t begun = 0; begun < count; ++begun) {
      int number = client_.connect();
      if (number > 0) numbers.push_back(number);
    }
    auto isOpen = [&](int number) {
      return client_.connection(number).state == QueuePairClient::State::connecting;
    };
    wait([&] { return std::none_of(numbers.begin(), numbers.end(), isOpen); });
    size_t connected = 0, refused = 0, silent = 0;
    for (int number : numbers) {
      QueuePairClient::State state = client_.connection(number).state;
      if (state == QueuePairClient::State::refused)
        ++refused;
      else if (state == QueuePairClient::State::connecting)
        ++silent;
      else
        ++connected;
      client_.close(number);
    }
    return std::to_string(connected) + " " + std::to_string(refused) + " " + std::to_string(silent);
  }

  std::string hear(QueuePairClient::Connection& told) {
    wait([&] { return !told.messages.empty() || told.state == QueuePairClient::State::over; });
    if (!told.messages.empty()) {
      std::vector<uint8_t> message = std::move(told.messages.front());
      told.messages.erase(told.messages.begin());
      return "message " + toHex(message);
    }
    return told.state == QueuePairClient::State::over ? "over" : "silent";
  }

  template <typename F>
  bool wait(F&& condition) {
    auto end = std::chrono::steady_clock::now() + 3 * kDeadline;
    while (!condition()) {
      if (std::chrono::steady_clock::now() > end) return false;
      client_.turn();
    }
    return true;
  }

  QueuePairClient& client_;
};

}  // namespace

int playQueuePairClient(const QueuePairPlace& place, uint16_t port) {
  auto opened = QueuePairClient::open(place, port);
  if (!opened) {
    std::cout << "failed " << opened.failure().message << std::endl;
    return 1;
  }
  std::cout << "ready" << std::endl;
  QueuePairPart part(**opened);
  for (;;) {
    pollfd input{0, POLLIN, 0};
    (*opened)->turn();
    if (poll(&input, 1, 1) == 0) continue;
    std::string line;
    if (!std::getline(std::cin, line)) return 0;
    std::cout << part.answer(line) << std::endl;
    // What is buffered already makes no descriptor readable.
    while (std::cin.rdbuf()->in_avail() > 0 && std::getline(std::cin, line))
      std::cout << part.answer(line) << std::endl;
  }
}

}  // namespace cinnabar::test
