// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "fabric/address.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>

#include "fabric/memory.h"

namespace cinnabar::fabric {
namespace {

constexpr std::string_view kShmPrefix = "fi_shm://";
constexpr size_t kShmNameMax = 64;

template <typename T>
RawAddress bytesOf(const T& value) {
  RawAddress raw(sizeof value);
  std::memcpy(raw.data(), &value, sizeof value);
  return raw;
}

uint32_t scopeOf(const std::string& text) {
  uint32_t number = if_nametoindex(text.c_str());
  if (number != 0) return number;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? number : 0;
}

}  // namespace

std::optional<RawAddress> encodeSocketAddress(const std::string& host, uint32_t port) {
  if (port > 65535) return std::nullopt;
  sockaddr_in four{};
  four.sin_family = AF_INET;
  four.sin_port = htons(static_cast<uint16_t>(port));
  if (host.empty()) return bytesOf(four);
  if (inet_pton(AF_INET, host.c_str(), &four.sin_addr) == 1) return bytesOf(four);

  sockaddr_in6 six{};
  six.sin6_family = AF_INET6;
  six.sin6_port = htons(static_cast<uint16_t>(port));
  size_t percent = host.find('%');
  if (inet_pton(AF_INET6, host.substr(0, percent).c_str(), &six.sin6_addr) != 1)
    return std::nullopt;
  if (percent != std::string::npos) {
    six.sin6_scope_id = scopeOf(host.substr(percent + 1));
    if (six.sin6_scope_id == 0) return std::nullopt;
  }
  return bytesOf(six);
}

int familyOf(const uint8_t* bytes, size_t length) {
  sa_family_t family = 0;
  if (length < sizeof family) return 0;
  std::memcpy(&family, bytes, sizeof family);
  if (family == AF_INET && length == sizeof(sockaddr_in)) return AF_INET;
  if (family == AF_INET6 && length == sizeof(sockaddr_in6)) return AF_INET6;
  return 0;
}

std::optional<HostPort> decodeSocketAddress(const uint8_t* bytes, size_t length) {
  char text[INET6_ADDRSTRLEN] = "";
  switch (familyOf(bytes, length)) {
    case AF_INET: {
      sockaddr_in four;
      std::memcpy(&four, bytes, sizeof four);
      inet_ntop(AF_INET, &four.sin_addr, text, sizeof text);
      return HostPort{text, ntohs(four.sin_port)};
    }
    case AF_INET6: {
      sockaddr_in6 six;
      std::memcpy(&six, bytes, sizeof six);
      inet_ntop(AF_INET6, &six.sin6_addr, text, sizeof text);
      HostPort result{text, ntohs(six.sin6_port)};
      if (six.sin6_scope_id != 0) {
        char name[IF_NAMESIZE];
        bool known = if_indextoname(six.sin6_scope_id, name) != nullptr;
        result.host += "%" + (known ? std::string(name) : std::to_string(six.sin6_scope_id));
      }
      return result;
    }
    default:
      return std::nullopt;
  }
}

bool isEveryAddress(const uint8_t* bytes, size_t length) {
  if (familyOf(bytes, length) != AF_INET6) return false;
  sockaddr_in6 six;
  std::memcpy(&six, bytes, sizeof six);
  return IN6_IS_ADDR_UNSPECIFIED(&six.sin6_addr);
}

RawAddress mapToSix(const uint8_t* bytes, size_t length) {
  sockaddr_in four{};
  std::memcpy(&four, bytes, std::min(length, sizeof four));
  sockaddr_in6 six{};
  six.sin6_family = AF_INET6;
  six.sin6_port = four.sin_port;
  six.sin6_addr.s6_addr[10] = six.sin6_addr.s6_addr[11] = 0xff;
  std::memcpy(&six.sin6_addr.s6_addr[12], &four.sin_addr, sizeof four.sin_addr);
  return bytesOf(six);
}

bool isShmName(std::string_view name) {
  if (name.empty() || name.size() > kShmNameMax) return false;
  bool isPath = isShmPath(name);
  for (char c : name) {
    bool good = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                c == '.' || c == '_' || c == '-' || (isPath && c == '/');
    if (!good) return false;
  }
  return true;
}

bool isShmPath(std::string_view name) { return name.starts_with('/'); }

std::string drawShmName() {
  char text[17];
  snprintf(text, sizeof text, "%016lx", static_cast<unsigned long>(randomNumber()));
  return "p" + std::to_string(getpid()) + "." + text;
}

RawAddress encodeShmAddress(std::string_view name) {
  std::string text = std::string(kShmPrefix) + std::string(name);
  return RawAddress(text.c_str(), text.c_str() + text.size() + 1);
}

std::optional<std::string> decodeShmAddress(const uint8_t* bytes, size_t length) {
  if (length > 0 && bytes[length - 1] == 0) --length;
  std::string_view text(reinterpret_cast<const char*>(bytes), length);
  if (!text.starts_with(kShmPrefix)) return std::nullopt;
  text.remove_prefix(kShmPrefix.size());
  if (!isShmName(text)) return std::nullopt;
  return std::string(text);
}

}  // namespace cinnabar::fabric
