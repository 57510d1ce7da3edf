// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace cinnabar::fabric {

/// What Cinnabar changes that belongs to somebody else: tables and private structures of
/// libraries, and one right of the process. Each is done only where a fault of that very version
/// makes it necessary, or where the user asks for it on a version that is not known, and each can
/// be switched off.
enum class Patch {
  softIwarp,           // transport/verbs/soft_iwarp.h
  processCopies,       // transport/shm/process_memory.h
  tcpSockets,          // transport/tcp/socket_calls.h
  connectionRefusals,  // transport/verbs/refusals.h
  kernelSymbols,       // fabric/kernel_symbols.h
};

struct PatchEntry {
  Patch patch;
  const char* name;     // in the variables below
  const char* library;  // whose it is
  const char* what;     // is changed
  const char* why;      // and what happens without it
  /// Whether the user may ask for it on a version that the tables do not have.
  bool canBeForced;
};

enum class PatchState {
  notNeeded,  // on this version
  off,        // disabled
  ready,      // applied when a port needs it
  applied,    // in this process
};

std::span<const PatchEntry> patchTable();

/// Names, separated by commas, as the variables have them; "all" is all of the table.
struct PatchSwitches {
  std::string off;  // CINNABAR_NO_PATCHES
  std::string on;   // CINNABAR_PATCHES
  static PatchSwitches ofEnvironment();
};

/// What may be done here. `isNeeded` is what the versions say.
PatchState choosePatch(const PatchEntry& entry, bool isNeeded, const PatchSwitches& switches);

/// Whether the fault is in this version: of libfabric, or of Linux (uname(2)). False for what no
/// version decides.
bool needsPatch(Patch patch, uint32_t libfabric, std::string_view kernel);

/// On this machine, with the loaded libfabric.
bool allowsPatch(Patch patch);
PatchState patchState(const PatchEntry& entry);
/// Version of what a patch concerns: "1.17", or the kernel's release.
std::string patchedVersion(Patch patch);

/// It was applied.
void notePatched(Patch patch);

}  // namespace cinnabar::fabric
