// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <charconv>
#include <string_view>
#include <utility>

namespace cinnabar::base {

using KernelVersion = std::pair<unsigned, unsigned>;

/// The first two numbers of a kernel's release, as uname(2) gives it; {0, 0} for a release without
/// numbers.
inline KernelVersion kernelVersion(std::string_view release) {
  KernelVersion version;
  const char* end = release.data() + release.size();
  auto first = std::from_chars(release.data(), end, version.first);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != '.') return {};
  auto second = std::from_chars(first.ptr + 1, end, version.second);
  return second.ec == std::errc() ? version : KernelVersion();
}

}  // namespace cinnabar::base
