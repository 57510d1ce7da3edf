// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "fabric/linkage.h"

#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>

#include "fabric/library.h"

namespace cinnabar::fabric {
namespace {

// The relocations that put a function's address into an entry of a table.
#if defined(__x86_64__)
constexpr uint32_t kSlotTypes[] = {R_X86_64_JUMP_SLOT, R_X86_64_GLOB_DAT};
#elif defined(__aarch64__)
constexpr uint32_t kSlotTypes[] = {R_AARCH64_JUMP_SLOT, R_AARCH64_GLOB_DAT};
#else
constexpr uint32_t kSlotTypes[] = {UINT32_MAX};
#endif

bool isSlot(uint32_t type) {
  for (uint32_t known : kSlotTypes) {
    if (type == known) return true;
  }
  return false;
}

/// An object in the memory of this process, as its program headers describe it (elf(5)).
class Object : public LoadedObject {
 public:
  explicit Object(const dl_phdr_info& info) : info_(info) {}

  std::string_view path() const override {
    return info_.dlpi_name != nullptr ? info_.dlpi_name : "";
  }

  bool contains(const void* address) const override {
    auto at = reinterpret_cast<uintptr_t>(address) - info_.dlpi_addr;
    for (const auto& header : headers()) {
      if (header.p_type == PT_LOAD && at - header.p_vaddr < header.p_memsz) return true;
    }
    return false;
  }

  unsigned replace(const char* symbol, void* instead) const {
    const auto* dynamic = reinterpret_cast<const ElfW(Dyn)*>(addressOf(PT_DYNAMIC));
    if (dynamic == nullptr) return 0;
    Tables tables;
    for (; dynamic->d_tag != DT_NULL; ++dynamic) tables.read(*dynamic, info_.dlpi_addr);
    // Tables of another form (without addends) are 32-bit machines'.
    if (tables.symbols == nullptr || tables.names == nullptr || tables.jumpsForm == DT_REL)
      return 0;
    return replaceIn(tables, tables.jumps, tables.jumpsBytes, symbol, instead) +
           replaceIn(tables, tables.data, tables.dataBytes, symbol, instead);
  }

 private:
  struct Headers {
    const ElfW(Phdr) * first;
    size_t count;
    const ElfW(Phdr) * begin() const { return first; }
    const ElfW(Phdr) * end() const { return first + count; }
  };

  struct Tables {
    const ElfW(Sym) * symbols = nullptr;
    const char* names = nullptr;
    const ElfW(Rela) * jumps = nullptr;
    const ElfW(Rela) * data = nullptr;
    size_t jumpsBytes = 0;
    size_t dataBytes = 0;
    ElfW(Sxword) jumpsForm = DT_RELA;

    void read(const ElfW(Dyn) & entry, uintptr_t base) {
      // glibc has made addresses of these offsets, musl has not.
      uintptr_t value = entry.d_un.d_ptr;
      const void* pointer = reinterpret_cast<const void*>(value < base ? base + value : value);
      switch (entry.d_tag) {
        case DT_SYMTAB:
          symbols = static_cast<const ElfW(Sym)*>(pointer);
          break;
        case DT_STRTAB:
          names = static_cast<const char*>(pointer);
          break;
        case DT_JMPREL:
          jumps = static_cast<const ElfW(Rela)*>(pointer);
          break;
        case DT_PLTRELSZ:
          jumpsBytes = entry.d_un.d_val;
          break;
        case DT_PLTREL:
          jumpsForm = static_cast<ElfW(Sxword)>(entry.d_un.d_val);
          break;
        case DT_RELA:
          data = static_cast<const ElfW(Rela)*>(pointer);
          break;
        case DT_RELASZ:
          dataBytes = entry.d_un.d_val;
          break;
      }
    }
  };

  Headers headers() const { return {info_.dlpi_phdr, info_.dlpi_phnum}; }

  uintptr_t addressOf(uint32_t segment) const {
    for (const auto& header : headers()) {
      if (header.p_type == segment) return info_.dlpi_addr + header.p_vaddr;
    }
    return 0;
  }

  unsigned replaceIn(const Tables& tables, const ElfW(Rela) * table, size_t bytes,
                     const char* symbol, void* instead) const {
    unsigned places = 0;
    for (size_t i = 0; table != nullptr && i < bytes / sizeof *table; ++i) {
      if (!isSlot(ELF64_R_TYPE(table[i].r_info))) continue;
      const ElfW(Sym)& named = tables.symbols[ELF64_R_SYM(table[i].r_info)];
      if (std::strcmp(tables.names + named.st_name, symbol) != 0) continue;
      if (write(info_.dlpi_addr + table[i].r_offset, instead)) ++places;
    }
    return places;
  }

  /// The loader has made the tables read-only after it had filled them, where they were filled at
  /// once (PT_GNU_RELRO). They become so again.
  bool write(uintptr_t place, void* value) const {
    auto pageBytes = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    auto pageOf = [&](uintptr_t address) { return address & ~(pageBytes - 1); };
    bool isSealed = false;
    for (const auto& header : headers()) {
      uintptr_t begin = info_.dlpi_addr + header.p_vaddr;
      // Not the last page where other data share it.
      bool isIn = place >= pageOf(begin) && place < pageOf(begin + header.p_memsz);
      if (header.p_type == PT_GNU_RELRO && isIn) isSealed = true;
    }
    void* page = reinterpret_cast<void*>(pageOf(place));
    if (isSealed && mprotect(page, pageBytes, PROT_READ | PROT_WRITE) != 0) return false;
    __atomic_store_n(reinterpret_cast<void**>(place), value, __ATOMIC_RELEASE);
    if (isSealed) mprotect(page, pageBytes, PROT_READ);
    return true;
  }

  const dl_phdr_info& info_;
};

struct Replacement {
  bool (*concerns)(const LoadedObject& object);
  const char* symbol;
  void* instead;
  unsigned places;
};

bool isLibfabric(const LoadedObject& object) {
  if (object.path().find("-fi.so") != std::string_view::npos) return true;
  const fabric::Library* library = fabric::library();
  return library != nullptr && object.contains(reinterpret_cast<const void*>(library->getinfo));
}

}  // namespace

unsigned replaceInLinkage(bool (*concerns)(const LoadedObject& object), const char* symbol,
                          void* instead) {
  Replacement replacement{concerns, symbol, instead, 0};
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        auto* asked = static_cast<Replacement*>(data);
        Object object(*info);
        if (asked->concerns(object)) asked->places += object.replace(asked->symbol, asked->instead);
        return 0;
      },
      &replacement);
  return replacement.places;
}

unsigned replaceInLibfabric(const char* symbol, void* instead) {
  return replaceInLinkage(isLibfabric, symbol, instead);
}

}  // namespace cinnabar::fabric
