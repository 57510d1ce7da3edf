// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <string_view>

namespace cinnabar::fabric {

/// A loaded object: its file's name, and whether an address lies in it.
class LoadedObject {
 public:
  virtual ~LoadedObject() = default;
  virtual std::string_view path() const = 0;
  virtual bool contains(const void* address) const = 0;
};

/// Replaces the function `symbol` by `instead` in the linkage tables of every loaded object that
/// `concerns` accepts. Calls of other objects do not change. Returns the number of replaced
/// entries; 0 without such entries, or where this machine's tables are not known here. The caller
/// keeps the former function, to call it.
unsigned replaceInLinkage(bool (*concerns)(const LoadedObject& object), const char* symbol,
                          void* instead);

/// The same in libfabric itself, and in those of its providers that are files of their own.
unsigned replaceInLibfabric(const char* symbol, void* instead);

}  // namespace cinnabar::fabric
