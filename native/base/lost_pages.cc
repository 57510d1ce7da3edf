// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "base/lost_pages.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <mutex>

namespace cinnabar::base {

/// One mapping, as the handler reads it. They are used again and never freed, so the handler
/// may walk their list at any time.
struct WatchedMapping {
  std::atomic<uintptr_t> begin{0};  // 0: free
  std::atomic<uintptr_t> end{0};
  std::atomic<size_t> page{0};
  std::atomic<int> file{-1};
  std::atomic<int> alarm{-1};
  std::atomic<bool> damaged{false};
  WatchedMapping* next = nullptr;
};

namespace {

std::atomic<WatchedMapping*> mappings{nullptr};
std::mutex mappingsMutex;  // of those that take and free them, and set the handler

struct sigaction formerAction;  // what SIGBUS did before the handler was set
bool handlerIsSet = false;

/// The entry of the mapping that has the address. An entry that is freed and taken meanwhile has
/// another `begin`.
WatchedMapping* entryOf(uintptr_t address) {
  for (WatchedMapping* entry = mappings.load(std::memory_order_acquire); entry;
       entry = entry->next) {
    uintptr_t begin = entry->begin.load(std::memory_order_acquire);
    if (begin == 0 || address < begin || address >= entry->end.load(std::memory_order_acquire))
      continue;
    if (entry->begin.load(std::memory_order_acquire) == begin) return entry;
  }
  return nullptr;
}

/// The first address that lies beyond the end of the file; the mapping's end where that is unknown.
uintptr_t endOfFile(const WatchedMapping& entry) {
  struct stat now;
  if (fstat(entry.file, &now) != 0 || !S_ISREG(now.st_mode)) return entry.end;
  size_t page = entry.page;
  return entry.begin + (static_cast<size_t>(now.st_size) + page - 1) / page * page;
}

void ring(const WatchedMapping& entry) {
  const uint64_t one = 1;
  if (int alarm = entry.alarm; alarm >= 0 && write(alarm, &one, sizeof one) < 0) {
    // The alarm is on already.
  }
}

/// Replaces the page of the address. All that lies beyond the file's end goes at once: one mapping
/// each for many pages would reach the system's limit of mappings.
bool repair(uintptr_t address) {
  WatchedMapping* entry = entryOf(address);
  if (entry == nullptr) return false;
  entry->damaged = true;
  size_t page = entry->page;
  uintptr_t from = address - address % page;
  uintptr_t to = from + page;
  if (uintptr_t lost = endOfFile(*entry); from >= lost) {
    from = lost;
    to = entry->end;
  }
  void* zeros = mmap(reinterpret_cast<void*>(from), to - from, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
  ring(*entry);
  return zeros != MAP_FAILED;
}

/// Passes a signal on that is not about a file.
void passOn(int signal, siginfo_t* info, void* context) {
  if (formerAction.sa_flags & SA_SIGINFO) return formerAction.sa_sigaction(signal, info, context);
  bool isSent = info->si_code <= 0;  // by kill(2) for example: no access raises it again
  if (formerAction.sa_handler == SIG_IGN && isSent) return;
  if (formerAction.sa_handler != SIG_DFL && formerAction.sa_handler != SIG_IGN)
    return formerAction.sa_handler(signal);
  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;
  sigaction(signal, &standard, nullptr);
  if (isSent) raise(signal);
}

/// Calls only what a signal handler may (signal-safety(7)), and mmap, which is a system call alone.
void onBusError(int signal, siginfo_t* info, void* context) {
  int error = errno;
  bool isRepaired =
      info->si_code == BUS_ADRERR && repair(reinterpret_cast<uintptr_t>(info->si_addr));
  if (!isRepaired) passOn(signal, info, context);
  errno = error;
}

/// Sets the handler once, and again if other code has restored the former disposition. A handler
/// that came later stays: it may call this one.
void setHandler() {
  struct sigaction now;
  if (sigaction(SIGBUS, nullptr, &now) != 0) return;
  bool isFree =
      !(now.sa_flags & SA_SIGINFO) && (now.sa_handler == SIG_DFL || now.sa_handler == SIG_IGN);
  if (handlerIsSet && !isFree) return;
  if (!handlerIsSet) formerAction = now;
  handlerIsSet = true;
  struct sigaction ours {};
  ours.sa_sigaction = onBusError;
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&ours.sa_mask);
  sigaction(SIGBUS, &ours, nullptr);
}

}  // namespace

LostPages::LostPages(uint8_t* begin, size_t length, size_t page, int file, int alarm) {
  std::lock_guard lock(mappingsMutex);
  setHandler();
  entry_ = mappings.load();
  while (entry_ != nullptr && entry_->begin != 0) entry_ = entry_->next;
  bool isNew = entry_ == nullptr;
  if (isNew) entry_ = new WatchedMapping;
  entry_->end = reinterpret_cast<uintptr_t>(begin) + length;
  entry_->page = page;
  entry_->file = file;
  entry_->alarm = alarm;
  entry_->damaged = false;
  entry_->begin = reinterpret_cast<uintptr_t>(begin);
  if (!isNew) return;
  entry_->next = mappings.load();
  mappings = entry_;
}

LostPages::~LostPages() {
  std::lock_guard lock(mappingsMutex);
  entry_->begin = 0;
}

bool LostPages::any() const { return entry_->damaged; }

void LostPages::mark() {
  entry_->damaged = true;
  ring(*entry_);
}

}  // namespace cinnabar::base
