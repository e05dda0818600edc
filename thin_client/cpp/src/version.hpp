// What a client says of itself.
#pragma once

#include <string>

namespace orderlane::detail {

/// Name and version of this library, as the proxy's statistics show it.
inline constexpr const char* client_version = "orderlane-cpp/" ORDERLANE_VERSION;

/// `host@process-1f2e`: unique, and says to an operator where to look.
[[nodiscard]] std::string default_client_id();

}  // namespace orderlane::detail
