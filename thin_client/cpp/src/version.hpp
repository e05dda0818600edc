// Name, version and id of a client.
#pragma once

#include <string>

namespace orderlane::detail {

/// Name and version of this library, shown in the proxy's statistics.
inline constexpr const char* client_version = "orderlane-cpp/" ORDERLANE_VERSION;

/// `host@process-1f2e`: unique, and shows operators where the client runs.
[[nodiscard]] std::string default_client_id();

}  // namespace orderlane::detail
