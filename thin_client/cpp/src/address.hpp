// Proxy addresses in text form. Pure.
#pragma once

#include <orderlane/options.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace orderlane::detail {

struct Address {
    std::string host;
    std::uint16_t port = 0;

    /// `host:port`, with brackets around IPv6.
    [[nodiscard]] std::string text() const;
    bool operator==(const Address&) const = default;
};

/// Parses `host:port`, `host` (port 9713) or `[IPv6]:port`; throws std::invalid_argument for
/// others.
[[nodiscard]] Address parse_address(std::string_view text);

/// Throws std::invalid_argument if there is no address, or an invalid one.
[[nodiscard]] std::vector<Address> parse_addresses(const Servers& servers);

}  // namespace orderlane::detail
