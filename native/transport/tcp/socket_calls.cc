// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "transport/tcp/socket_calls.h"

#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstring>

#include "base/clock.h"
#include "base/descriptor_reserve.h"
#include "fabric/linkage.h"
#include "fabric/patches.h"
#include "transport/tcp/local_connection.h"
#include "transport/tcp/socket_watch.h"

namespace cinnabar::tcp {
namespace {

using Stage = Socket::Stage;

Stage stageOf(const Socket& socket) { return socket.stage.load(std::memory_order_relaxed); }
void setStage(Socket& socket, Stage stage) { socket.stage.store(stage, std::memory_order_release); }
SocketWatch* watchOf(const Socket& socket) { return socket.watch.load(std::memory_order_acquire); }

bool isRetry(int code) { return code == EAGAIN || code == EWOULDBLOCK || code == EINTR; }

void unreachable(const Socket& socket, int code) {
  if (SocketWatch* watch = watchOf(socket)) watch->onUnreachable(socket, code);
}

void moved(const Socket& socket, ssize_t bytes) {
  if (SocketWatch* watch = watchOf(socket)) watch->onMoved(static_cast<size_t>(bytes));
}

/// The stream is broken. The provider hears that the connection was reset, now and whenever it
/// asks again.
ssize_t breakOff(int fd, Socket& socket) {
  setStage(socket, Stage::bad);
  if (SocketWatch* watch = watchOf(socket)) watch->onMalformed();
  // Makes the descriptor readable, should nothing more come.
  shutdown(fd, SHUT_RDWR);
  errno = ECONNRESET;
  return -1;
}

/// The connection claims the address of a living peer. The other side gets the
/// refusal for one of two simultaneous connections; the provider learns of a reset connection.
ssize_t refuse(int fd, Socket& socket) {
  const auto said = ControlMessage::refusal();
  ::send(fd, said.data(), said.size(), MSG_NOSIGNAL);
  setStage(socket, Stage::bad);
  shutdown(fd, SHUT_RDWR);
  errno = ECONNRESET;
  return -1;
}

void keepAddress(Socket& socket, const sockaddr* address, socklen_t length) {
  socket.peer = {};
  std::memcpy(&socket.peer, address, std::min<size_t>(length, sizeof socket.peer));
}

/// Bytes of the control message, which the provider asks for in two calls, head and data. It wants
/// each whole and otherwise looks at errno, where any earlier call's may stand: with EAGAIN it
/// would wait for ever.
ssize_t onControl(int fd, Socket& socket, const uint8_t* bytes, size_t asked, ssize_t got) {
  bool isRequest = stageOf(socket) == Stage::accepted;
  if (got < 0) {
    if (!isRequest && !isRetry(errno)) unreachable(socket, errno);
    return got;
  }
  if (got == 0) {
    if (!isRequest) unreachable(socket, ECONNRESET);
    errno = ECONNRESET;
    return 0;
  }
  if (!socket.isFiltered) return got;
  if (!socket.control.take(bytes, static_cast<size_t>(got), isRequest)) {
    if (!isRequest) unreachable(socket, EPROTO);
    return breakOff(fd, socket);
  }
  if (static_cast<size_t>(got) < asked) errno = EPROTO;
  if (!socket.control.isWhole()) return got;
  if (!isRequest && socket.control.isRefusal()) {
    // Without a reason it is one of two that connect to each other at once; the other goes on.
    if (socket.control.lacksDescriptors()) unreachable(socket, EUSERS);
    return got;
  }
  if (isRequest) {
    uint16_t port = socket.control.listeningPort();
    // In sockaddr_in and sockaddr_in6 at the same place.
    socket.peer.sin6_port = port;
    SocketWatch* watch = watchOf(socket);
    if (watch != nullptr && watch->isTaken(addressOf(socket.peer))) return refuse(fd, socket);
  }
  setStage(socket, Stage::streaming);
  if (SocketWatch* watch = watchOf(socket)) watch->onConnection(fd, socket);
  return got;
}

/// What a call that reads has brought, into one buffer or several.
ssize_t onRead(int fd, Socket& socket, const iovec* runs, size_t count, ssize_t got) {
  if (stageOf(socket) != Stage::streaming)
    return onControl(fd, socket, static_cast<const uint8_t*>(runs[0].iov_base), runs[0].iov_len,
                     got);
  if (got > 0) moved(socket, got);
  if (!socket.isFiltered || got <= 0) return got;
  auto left = static_cast<size_t>(got);
  size_t good = 0;
  for (size_t i = 0; i < count && left > 0; ++i) {
    size_t bytes = std::min(left, runs[i].iov_len);
    size_t passed = socket.filter.onReceived(static_cast<const uint8_t*>(runs[i].iov_base), bytes);
    good += passed;
    if (passed < bytes) {
      breakOff(fd, socket);
      return good > 0 ? static_cast<ssize_t>(good) : -1;
    }
    left -= bytes;
  }
  if (socket.held != socket.filter.heldMessage()) {
    if (SocketWatch* watch = watchOf(socket)) watch->onHeld(socket);
  }
  return got;
}

bool reads(const Socket* socket) {
  if (socket == nullptr) return false;
  Stage stage = stageOf(*socket);
  return stage == Stage::streaming || stage == Stage::accepted || stage == Stage::asking;
}

bool isBad(const Socket* socket) {
  if (socket == nullptr || stageOf(*socket) != Stage::bad) return false;
  errno = ECONNRESET;
  return true;
}

/// The kernel could not read what was to leave: memory of a file that has lost bytes. The provider
/// drops such a message, of which a part may have left, and goes on with the next one. The other
/// side would take that for the rest, or wait for ever. So the connection ends.
void onUnreadable(int fd, Socket& socket) {
  setStage(socket, Stage::bad);
  shutdown(fd, SHUT_RDWR);
}

void onWritten(int fd, Socket& socket, const iovec* runs, size_t count, ssize_t sent) {
  Stage stage = stageOf(socket);
  if (stage == Stage::other) return;
  if (sent <= 0) {
    if (sent < 0 && errno == EFAULT) return onUnreadable(fd, socket);
    if (stage == Stage::connecting && !isRetry(errno)) unreachable(socket, errno);
    return;
  }
  if (!socket.hasSaidControl) {
    socket.hasSaidControl = true;
    if (stage != Stage::connecting) return;
    setStage(socket, Stage::asking);
    if (SocketWatch* watch = watchOf(socket)) watch->onConnection(fd, socket);
    return;
  }
  moved(socket, sent);
  if (!socket.isFiltered) return;
  auto left = static_cast<size_t>(sent);
  for (size_t i = 0; i < count && left > 0; ++i) {
    size_t bytes = std::min(left, runs[i].iov_len);
    socket.filter.onSent(static_cast<const uint8_t*>(runs[i].iov_base), bytes);
    left -= bytes;
  }
}

/// Remembers a descriptor that was made; -1 if there is no place for it.
int keep(int fd, Stage stage) {
  if (fd < 0) return fd;
  if (SocketTable::make(fd, stage) != nullptr) return fd;
  ::close(fd);
  errno = EMFILE;
  return -1;
}

/// Answers connections for which there is no descriptor, and counts them.
void turnAway(int listener, SocketWatch& watch, int code) {
  const auto said = ControlMessage::lackOfDescriptors();
  unsigned turned = base::turnAway(listener, [&](int fd) {
    // Read first: bytes that are left unread would reset the connection, and what was said with it.
    // An honest peer has said less than this.
    char asked[256];
    (void)!::recv(fd, asked, sizeof asked, 0);
    ::send(fd, said.data(), said.size(), MSG_NOSIGNAL);
  });
  if (turned > 0) watch.onTurnedAway(code, turned);
}

int ourSocket(int domain, int type, int protocol) {
  int fd = ::socket(domain, type | SOCK_CLOEXEC, protocol);
  bool isTcp = (domain == AF_INET || domain == AF_INET6) && (type & 0xf) == SOCK_STREAM;
  return isTcp ? keep(fd, Stage::other) : fd;
}

int ourAccept(int listener, sockaddr* address, socklen_t* length) {
  sockaddr_in6 peer{};
  socklen_t peerBytes = sizeof peer;
  int fd = accept4(listener, reinterpret_cast<sockaddr*>(&peer), &peerBytes, SOCK_CLOEXEC);
  Socket* from = SocketTable::find(listener);
  SocketWatch* watch = from == nullptr ? nullptr : watchOf(*from);
  if (fd < 0) {
    int code = errno;
    bool lacks = watch != nullptr && base::lacksDescriptors(code);
    if (lacks && !watch->makeRoom()) turnAway(listener, *watch, code);
    // Dealt with, so the provider need not log it.
    errno = lacks ? EAGAIN : code;
    return fd;
  }
  if (address != nullptr && length != nullptr) {
    std::memcpy(address, &peer, std::min<size_t>(*length, peerBytes));
    *length = peerBytes;
  }
  if (watch == nullptr) return fd;
  if (keep(fd, Stage::accepted) < 0) return -1;
  Socket& socket = *SocketTable::find(fd);
  socket.isInbound = true;
  socket.sinceNs = base::nowNs();
  socket.peer = peer;
  unpaceIfLocal(fd, peer);
  watch->attach(fd, socket);
  return fd;
}

int ourConnect(int fd, const sockaddr* address, socklen_t length) {
  Socket* socket = SocketTable::find(fd);
  if (socket != nullptr) {
    keepAddress(*socket, address, length);
    socket->sinceNs = base::nowNs();
    setStage(*socket, Stage::connecting);
  }
  int status = ::connect(fd, address, length);
  // The kernel has now chosen this end's address.
  if (socket != nullptr) unpaceIfLocal(fd, socket->peer);
  if (status != 0 && socket != nullptr && errno != EINPROGRESS && !isRetry(errno)) {
    int code = errno;
    // The caller learns the error at once.
    setStage(*socket, Stage::other);
    errno = code;
  }
  return status;
}

int ourGetsockopt(int fd, int level, int option, void* value, socklen_t* length) {
  int status = ::getsockopt(fd, level, option, value, length);
  if (level == SOL_SOCKET && option == SO_ZEROCOPY && status == 0) {
    // The provider asks before it sends without a copy. The kernel would read memory after `send`
    // has returned, and memory whose key was withdrawn is free by then (KeysInUse).
    std::memset(value, 0, *length);
    return status;
  }
  if (level != SOL_SOCKET || option != SO_ERROR || status != 0) return status;
  Socket* socket = SocketTable::find(fd);
  int code = 0;
  if (*length == sizeof code) std::memcpy(&code, value, sizeof code);
  if (socket != nullptr && code != 0 && stageOf(*socket) == Stage::connecting)
    unreachable(*socket, code);
  return status;
}

ssize_t ourRecv(int fd, void* bytes, size_t length, int flags) {
  Socket* socket = SocketTable::find(fd);
  if (isBad(socket)) return -1;
  ssize_t got = ::recv(fd, bytes, length, flags);
  if (!reads(socket)) return got;
  iovec run{bytes, length};
  return onRead(fd, *socket, &run, 1, got);
}

ssize_t ourRecvmsg(int fd, msghdr* message, int flags) {
  Socket* socket = SocketTable::find(fd);
  bool isData = (flags & MSG_ERRQUEUE) == 0;
  if (isData && isBad(socket)) return -1;
  ssize_t got = ::recvmsg(fd, message, flags);
  if (!isData || !reads(socket) || message->msg_iovlen == 0) return got;
  return onRead(fd, *socket, message->msg_iov, message->msg_iovlen, got);
}

// MSG_MORE or 0, and the socket in which bytes wait for more, or -1.
thread_local int moreFlag = 0;
thread_local int waitingSocket = -1;

/// `answers`: the answer to a read leaves, and others are to follow it.
int flagsFor(int fd, int flags, bool answers) {
  int more = answers ? MSG_MORE : moreFlag;
  if (more != 0) {
    // A provider that has no connection to a peer yet makes progress for all the others.
    if (waitingSocket != fd) sendWhatWaits();
    waitingSocket = fd;
  } else if (waitingSocket == fd) {
    waitingSocket = -1;
  }
  return flags | more;
}

ssize_t ourSend(int fd, const void* bytes, size_t length, int flags) {
  ssize_t sent = ::send(fd, bytes, length, flagsFor(fd, flags, false));
  Socket* socket = SocketTable::find(fd);
  if (socket == nullptr) return sent;
  int code = errno;
  iovec run{const_cast<void*>(bytes), length};
  onWritten(fd, *socket, &run, 1, sent);
  errno = code;
  return sent;
}

ssize_t ourSendmsg(int fd, const msghdr* message, int flags) {
  Socket* socket = SocketTable::find(fd);
  // The provider answers reads in order, and the last read's answer flushes the data that wait.
  // That answer may never come: a message without a receive holds up what is behind it. The port
  // then flushes the data at the end of its poll.
  bool answers = socket != nullptr && socket->keys.reads() > 1;
  ssize_t sent = ::sendmsg(fd, message, flagsFor(fd, flags, answers));
  if (socket == nullptr) return sent;
  int code = errno;
  onWritten(fd, *socket, message->msg_iov, message->msg_iovlen, sent);
  errno = code;
  return sent;
}

int ourClose(int fd) {
  if (waitingSocket == fd) waitingSocket = -1;
  if (Socket* socket = SocketTable::find(fd)) {
    if (SocketWatch* watch = watchOf(*socket)) watch->detach(fd);
    SocketTable::drop(*socket);
  }
  return ::close(fd);
}

int ourEpollCreate(int) {
  int fd = epoll_create1(EPOLL_CLOEXEC);
  if (SocketWatch::opening == nullptr || fd < 0) return fd;
  if (keep(fd, Stage::other) < 0) return -1;
  SocketWatch::opening->attach(fd, *SocketTable::find(fd));
  return fd;
}

int ourEpollControl(int set, int operation, int fd, epoll_event* event) {
  if (operation == EPOLL_CTL_ADD) {
    Socket* socket = SocketTable::find(fd);
    Socket* in = SocketTable::find(set);
    SocketWatch* watch = in == nullptr ? nullptr : watchOf(*in);
    if (socket != nullptr && watch != nullptr && watchOf(*socket) == nullptr)
      watch->attach(fd, *socket);
  }
  return epoll_ctl(set, operation, fd, event);
}

int ourSocketpair(int domain, int type, int protocol, int* pair) {
  return ::socketpair(domain, type | SOCK_CLOEXEC, protocol, pair);
}

int ourPipe(int* ends) { return pipe2(ends, O_CLOEXEC); }

int ourOpen(const char* path, int flags, ...) {
  mode_t mode = 0;
  if ((flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE) {
    va_list more;
    va_start(more, flags);
    mode = va_arg(more, mode_t);
    va_end(more);
  }
  return ::open(path, flags | O_CLOEXEC, mode);
}

template <typename F>
unsigned putInPlace(const char* symbol, F* function) {
  return fabric::replaceInLibfabric(symbol, reinterpret_cast<void*>(function));
}

/// The functions without which the others are useless.
bool putAllInPlace() {
  base::reserveDescriptor();
  bool isWhole =
      putInPlace("close", ourClose) > 0 && putInPlace("socket", ourSocket) > 0 &&
      putInPlace("accept", ourAccept) > 0 && putInPlace("connect", ourConnect) > 0 &&
      putInPlace("getsockopt", ourGetsockopt) > 0 && putInPlace("recv", ourRecv) > 0 &&
      putInPlace("recvmsg", ourRecvmsg) > 0 && putInPlace("send", ourSend) > 0 &&
      putInPlace("sendmsg", ourSendmsg) > 0 && putInPlace("epoll_ctl", ourEpollControl) > 0 &&
      putInPlace("epoll_create", ourEpollCreate) + putInPlace("epoll_create1", ourEpollCreate) > 0;
  putInPlace("socketpair", ourSocketpair);
  putInPlace("pipe", ourPipe);
  putInPlace("open", ourOpen);
  return isWhole;
}

}  // namespace

bool watchSockets() {
  if (!fabric::allowsPatch(fabric::Patch::tcpSockets)) return false;
  static const bool isInPlace = putAllInPlace();
  if (isInPlace) fabric::notePatched(fabric::Patch::tcpSockets);
  return isInPlace;
}

MoreFollows::MoreFollows() { moreFlag = MSG_MORE; }

MoreFollows::~MoreFollows() { moreFlag = 0; }

void sendWhatWaits() {
  if (waitingSocket < 0) return;
  // The kernel sends what it holds when this is set, even if it was set before (tcp(7)).
  int on = 1;
  setsockopt(waitingSocket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  waitingSocket = -1;
}

}  // namespace cinnabar::tcp
