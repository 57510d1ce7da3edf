// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <memory>
#include <optional>

#include "base/allocation.h"
#include "base/fd.h"
#include "base/lost_pages.h"

namespace cinnabar::base {

/// A file in memory, from its first byte on. It owns a descriptor of the file.
class MappedFile : public Allocation {
 public:
  struct Request {
    Fd file;
    uint64_t bytes = 0;  // at least 1
    /// Stores go to the file. Otherwise they stay in this process.
    bool writable = false;
    /// Whether space for all bytes is allocated first, and the file made as long as that.
    bool allocates = false;
    /// An eventfd(2) that becomes readable when the process has met lost pages.
    std::shared_ptr<const Fd> alarm;
  };
  /// The system call that failed, and its error number.
  struct Failure {
    const char* call;
    int code;
  };

  /// nullptr and `*failure`. May take as long as the file system needs to allocate the bytes.
  static std::shared_ptr<MappedFile> open(Request request, Failure* failure);
  /// The file that is mapped at the address; nullptr for any other memory.
  static std::shared_ptr<MappedFile> of(const void* address);
  /// Whether a damaged file is mapped at the address. Takes little time in a process without mapped
  /// files.
  static bool isDamagedAt(const void* address);
  ~MappedFile() override;

  /// Whether bytes of the file were lost since it was mapped: the file is shorter now, or the
  /// process has met a lost page. It stays so.
  bool isDamaged() const;
  /// Writes the range to the storage (msync(2)), which may take long. 0 or an error number. From
  /// any thread.
  int flush(uint64_t offset, uint64_t length) const;

 private:
  MappedFile(uint8_t* begin, size_t length, size_t page, uint64_t bytes, Fd file, bool hasLength,
             std::shared_ptr<const Fd> alarm);

  Fd file_;
  std::shared_ptr<const Fd> alarm_;
  size_t page_;
  uint64_t bytes_;
  bool hasLength_;  // a device has no length
  mutable LostPages lost_;
};

}  // namespace cinnabar::base
