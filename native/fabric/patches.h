// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace cinnabar::fabric {

/// Run-time changes to other libraries and to the process: tables, private structures, and one
/// right of the process. A change is made only if a fault of that version makes it necessary, or if
/// the user asks for it on an unknown version. Each change can be switched off.
enum class Patch {
  processCopies,       // transport/shm/process_memory.h
  tcpSockets,          // transport/tcp/socket_calls.h
  connectionRefusals,  // transport/verbs/refusals.h
  kernelSymbols,       // fabric/kernel_symbols.h
};

struct PatchEntry {
  Patch patch;
  const char* name;     // in the variables below
  const char* library;  // the library that is changed
  const char* what;     // what is changed
  const char* why;      // the fault without the change
  /// Whether the user may ask for it on a version that is not in the tables.
  bool canBeForced;
};

enum class PatchState {
  notNeeded,  // on this version
  off,        // disabled
  ready,      // applied when a port needs it
  applied,    // in this process
};

std::span<const PatchEntry> patchTable();

/// Names, separated by commas, as in the variables; "all" is the whole table.
struct PatchSwitches {
  std::string off;  // CINNABAR_NO_PATCHES
  std::string on;   // CINNABAR_PATCHES
  static PatchSwitches ofEnvironment();
};

/// The state of a patch. `isNeeded`: this version has the fault.
PatchState choosePatch(const PatchEntry& entry, bool isNeeded, const PatchSwitches& switches);

/// Whether this version of libfabric has the fault. False for patches that do not depend on a
/// version of it.
bool needsPatch(Patch patch, uint32_t libfabric);

/// On this machine, with the loaded libfabric.
bool allowsPatch(Patch patch);
PatchState patchState(const PatchEntry& entry);
/// Version of the patched library or kernel: "1.17", or the kernel's release.
std::string patchedVersion(Patch patch);

/// Notes that the patch was applied.
void notePatched(Patch patch);

}  // namespace cinnabar::fabric
