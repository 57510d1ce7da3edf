// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <rdma/fabric.h>

#include <cstdint>
#include <string>
#include <vector>

#include "fabric/failure.h"

namespace cinnabar::fabric {

struct LoadAttempt {
  std::string path;
  std::string reason;  // empty on success
};

struct LoadReport {
  bool loaded = false;
  std::string path;      // the file in use, without links
  uint32_t version = 0;  // as fi_version() packs it
  std::vector<LoadAttempt> tried;
};

/// The few functions that libfabric exports; other calls go through the tables inside its objects.
/// The library is opened at run time and never closed: providers keep threads and exit handlers
/// that must not outlive their code.
struct Library {
  int (*getinfo)(uint32_t version, const char* node, const char* service, uint64_t flags,
                 const fi_info* hints, fi_info** info) = nullptr;
  void (*freeinfo)(fi_info* info) = nullptr;
  fi_info* (*dupinfo)(const fi_info* info) = nullptr;
  int (*fabric)(fi_fabric_attr* attr, fid_fabric** fabric, void* context) = nullptr;
  uint32_t (*version)() = nullptr;
  const char* (*strerror)(int code) = nullptr;

  uint32_t loadedVersion = 0;
  std::string file;  // without links

  Failure fail(std::string op, int code, std::string message) const;
};

/// Sets the variables of libfabric and libibverbs that the user has not set. Call it once, before
/// the addon has another thread that may read the environment.
void prepareEnvironment();

/// Loads libfabric once per process. A success is remembered and returned to every later caller; a
/// failure is not, so that a later call may name better candidates.
LoadReport loadLibrary(const std::vector<std::string>& candidates);

/// The loaded library, or nullptr before a successful load. Safe from any thread.
const Library* library();

/// Opens one candidate without remembering it (the loader's own step, apart for tests). Returns ""
/// or the reason.
std::string openLibrary(const std::string& path, Library* into);

}  // namespace cinnabar::fabric
