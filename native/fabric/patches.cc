// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "fabric/patches.h"

#include <rdma/fabric.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>

#include "fabric/library.h"
#include "fabric/quirks.h"

namespace cinnabar::fabric {
namespace {

constexpr std::array kPatches = {
    PatchEntry{
        Patch::processCopies, "process-copies", "Linux Yama",
        "lets processes of the same user copy from and to this process's memory "
        "(PR_SET_PTRACER), once it meets an shm peer in another process; not where an engine has "
        "the option security, nor where the user runs processes in other control groups, unless "
        "CINNABAR_PTRACER says who may",
        "reads and writes over shm go through the rings, which takes two copies instead of one",
        false},
    PatchEntry{Patch::tcpSockets, "tcp-sockets", "libfabric tcp",
               "replaces socket, accept, connect, recv, send and others in libfabric's linkage "
               "table by functions that make the same calls, and check what comes",
               "bytes from anybody who can connect crash the process, child processes inherit the "
               "sockets, a refused connection is not noticed, and a process without descriptors "
               "spins",
               true},
    PatchEntry{Patch::connectionRefusals, "connection-refusals", "libfabric verbs",
               "replaces rdma_get_cm_event and rdma_connect in libfabric's linkage table by "
               "functions that make the same calls, and look at what they return",
               "a connect to where nobody listens ends by its time limit, not at once", false},
    PatchEntry{Patch::kernelSymbols, "kernel-symbols", "libfabric verbs",
               "replaces fopen in libfabric's linkage table by a function that finds no "
               "/proc/kallsyms",
               "libfabric reads 11 MB of kernel symbols once or twice as it starts, to learn of a "
               "use of graphics memory that Cinnabar never makes",
               false},
};

// There where Yama is.
constexpr const char* kYama = "/proc/sys/kernel/yama/ptrace_scope";

std::array<std::atomic<bool>, kPatches.size()> applied{};

bool lists(std::string_view names, std::string_view name) {
  while (!names.empty()) {
    size_t comma = names.find(',');
    std::string_view each = names.substr(0, comma);
    if (each == name || each == "all") return true;
    if (comma == std::string_view::npos) break;
    names.remove_prefix(comma + 1);
  }
  return false;
}

std::string kernelRelease() {
  utsname system{};
  return uname(&system) == 0 ? system.release : "";
}

std::string variable(const char* name) {
  const char* value = getenv(name);
  return value == nullptr ? "" : value;
}

bool isNeededHere(Patch patch) {
  if (patch == Patch::processCopies) return access(kYama, F_OK) == 0;
  const Library* loaded = library();
  return loaded != nullptr && needsPatch(patch, loaded->loadedVersion);
}

const PatchEntry& entryOf(Patch patch) { return kPatches[static_cast<size_t>(patch)]; }

}  // namespace

std::span<const PatchEntry> patchTable() { return kPatches; }

PatchSwitches PatchSwitches::ofEnvironment() {
  return {variable("CINNABAR_NO_PATCHES"), variable("CINNABAR_PATCHES")};
}

PatchState choosePatch(const PatchEntry& entry, bool isNeeded, const PatchSwitches& switches) {
  if (lists(switches.off, entry.name)) return PatchState::off;
  if (entry.canBeForced && lists(switches.on, entry.name)) return PatchState::ready;
  return isNeeded ? PatchState::ready : PatchState::notNeeded;
}

bool needsPatch(Patch patch, uint32_t libfabric) {
  switch (patch) {
    case Patch::tcpSockets:
      return hasQuirk(Quirk::leavesSockets, "tcp", libfabric);
    case Patch::connectionRefusals:
      return hasQuirk(Quirk::hidesRefusals, "verbs;ofi_rxm", libfabric);
    case Patch::kernelSymbols:
      return hasQuirk(Quirk::readsKernelSymbols, "verbs", libfabric);
    case Patch::processCopies:
      return false;
  }
  return false;
}

bool allowsPatch(Patch patch) {
  return choosePatch(entryOf(patch), isNeededHere(patch), PatchSwitches::ofEnvironment()) ==
         PatchState::ready;
}

PatchState patchState(const PatchEntry& entry) {
  if (applied[static_cast<size_t>(entry.patch)]) return PatchState::applied;
  return choosePatch(entry, isNeededHere(entry.patch), PatchSwitches::ofEnvironment());
}

std::string patchedVersion(Patch patch) {
  if (patch == Patch::processCopies) return kernelRelease();
  const Library* loaded = library();
  if (loaded == nullptr) return "";
  uint32_t version = loaded->loadedVersion;
  return std::to_string(FI_MAJOR(version)) + "." + std::to_string(FI_MINOR(version));
}

void notePatched(Patch patch) { applied[static_cast<size_t>(patch)] = true; }

}  // namespace cinnabar::fabric
