// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

namespace cinnabar::fabric {

/// Keeps libfabric from reading /proc/kallsyms as it initialises its providers. verbs looks there
/// for what devices need to reach the memory of graphics processors, which Cinnabar never
/// registers. The file has some 11 MB, and up to libfabric 1.17 it is read twice.
///
/// Call it between loading libfabric and its first fi_getinfo. A provider in a file of its own is
/// loaded later, and is not kept from it.
void hideKernelSymbols();

}  // namespace cinnabar::fabric
