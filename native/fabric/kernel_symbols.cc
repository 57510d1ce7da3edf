// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "fabric/kernel_symbols.h"

#include <cerrno>
#include <cstdio>
#include <string_view>

#include "fabric/linkage.h"
#include "fabric/patches.h"

namespace cinnabar::fabric {
namespace {

/// Replaces fopen(3).
FILE* openFile(const char* path, const char* mode) {
  if (std::string_view(path) != "/proc/kallsyms") return fopen(path, mode);
  errno = ENOENT;
  return nullptr;
}

}  // namespace

void hideKernelSymbols() {
  if (!allowsPatch(Patch::kernelSymbols)) return;
  if (replaceInLibfabric("fopen", reinterpret_cast<void*>(openFile)) > 0)
    notePatched(Patch::kernelSymbols);
}

}  // namespace cinnabar::fabric
