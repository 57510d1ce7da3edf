// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

namespace cinnabar::base {
namespace {

constexpr uint64_t kMostFileBytes = uint64_t{1} << 46;
constexpr uint32_t kHugetlbfs = 0x958458f6;  // HUGETLBFS_MAGIC of linux/magic.h

std::atomic<size_t> mappedFiles{0};  // that are alive

/// What the file system maps at once: a page, or a huge page of hugetlbfs.
size_t pageOf(int file) {
  struct statfs system;
  bool isHuge = fstatfs(file, &system) == 0 && static_cast<uint32_t>(system.f_type) == kHugetlbfs;
  return static_cast<size_t>(isHuge ? system.f_bsize : sysconf(_SC_PAGESIZE));
}

/// 0 or an error number. A file that cannot be made longer keeps its length.
int allocateSpace(int file, uint64_t bytes, uint64_t length) {
  int code = EINTR;
  while (code == EINTR) code = posix_fallocate(file, 0, static_cast<off_t>(bytes));
  if (code != 0 && bytes > length && ftruncate(file, static_cast<off_t>(length)) != 0) {
    // What was allocated stays. The error that counts is the first.
  }
  return code;
}

}  // namespace

std::shared_ptr<MappedFile> MappedFile::open(Request request, Failure* failure) {
  auto fail = [&](const char* call, int code) {
    *failure = {call, code};
    return nullptr;
  };
  if (request.bytes == 0 || request.bytes > kMostFileBytes) return fail("mmap", EINVAL);
  Fd& file = request.file;
  struct stat status;
  if (fstat(file.get(), &status) != 0) return fail("fstat", errno);
  if (request.allocates) {
    int code = allocateSpace(file.get(), request.bytes, static_cast<uint64_t>(status.st_size));
    if (code != 0) return fail("posix_fallocate", code);
  }
  size_t page = pageOf(file.get());
  size_t length = (request.bytes + page - 1) / page * page;
  void* begin = mmap(nullptr, length, PROT_READ | PROT_WRITE,
                     request.writable ? MAP_SHARED : MAP_PRIVATE | MAP_NORESERVE, file.get(), 0);
  if (begin == MAP_FAILED) return fail("mmap", errno);
  std::shared_ptr<MappedFile> mapped(
      new MappedFile(static_cast<uint8_t*>(begin), length, page, request.bytes, std::move(file),
                     S_ISREG(status.st_mode), std::move(request.alarm)));
  enter(mapped);
  return mapped;
}

MappedFile::MappedFile(uint8_t* begin, size_t length, size_t page, uint64_t bytes, Fd file,
                       bool hasLength, std::shared_ptr<const Fd> alarm)
    : Allocation(begin, length),
      file_(std::move(file)),
      alarm_(std::move(alarm)),
      page_(page),
      bytes_(bytes),
      hasLength_(hasLength),
      lost_(begin, length, page, file_.get(), alarm_ ? alarm_->get() : -1) {
  ++mappedFiles;
}

std::shared_ptr<MappedFile> MappedFile::of(const void* address) {
  return std::dynamic_pointer_cast<MappedFile>(Allocation::of(address));
}

bool MappedFile::isDamagedAt(const void* address) {
  if (mappedFiles == 0) return false;
  auto file = of(address);
  return file != nullptr && file->isDamaged();
}

MappedFile::~MappedFile() { --mappedFiles; }

bool MappedFile::isDamaged() const {
  struct stat now;
  if (!lost_.any() && hasLength_ && fstat(file_.get(), &now) == 0 &&
      static_cast<uint64_t>(now.st_size) < bytes_) {
    lost_.mark();
  }
  return lost_.any();
}

int MappedFile::flush(uint64_t offset, uint64_t length) const {
  if (offset > bytes_ || length > bytes_ - offset) return EINVAL;
  uint64_t from = offset - offset % page_;
  return msync(bytes() + from, offset + length - from, MS_SYNC) == 0 ? 0 : errno;
}

}  // namespace cinnabar::base
