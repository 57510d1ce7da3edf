// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

namespace cinnabar::fabric {

/// Keeps libfabric from reading /proc/kallsyms as it initialises its providers. verbs looks there
/// for symbols by which devices reach the memory of graphics processors. Cinnabar never registers
/// such memory. The file has some 11 MB, and libfabric up to 1.17 reads it twice.
///
/// Call it between loading libfabric and its first fi_getinfo. A provider in a file of its own is
/// loaded later and still reads the file.
void hideKernelSymbols();

}  // namespace cinnabar::fabric
