#include "address.hpp"

#include <charconv>
#include <stdexcept>

namespace orderlane::detail {
namespace {

constexpr std::uint16_t default_port = 9713;
constexpr std::string_view spaces = " \t\r\n";

std::string_view trimmed(std::string_view text) {
    const auto begin = text.find_first_not_of(spaces);
    if (begin == std::string_view::npos) return {};
    return text.substr(begin, text.find_last_not_of(spaces) - begin + 1);
}

/// Returns 0 for an invalid port.
std::uint16_t parse_port(std::string_view text) {
    std::uint16_t port = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
    return error == std::errc{} && end == text.data() + text.size() ? port : 0;
}

}  // namespace

std::string Address::text() const {
    const bool is_v6 = host.find(':') != std::string::npos;
    return (is_v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

Address parse_address(std::string_view given) {
    const auto text = trimmed(given);
    std::string_view host, rest;
    if (text.starts_with('[')) {
        const auto end = text.find(']');
        if (end != std::string_view::npos) {
            host = text.substr(1, end - 1);
            rest = text.substr(end + 1);
            if (host.find_first_not_of("0123456789abcdefABCDEF:.") != std::string_view::npos) {
                host = {};
            }
        }
    } else {
        const auto colon = text.find(':');
        host = text.substr(0, colon);
        rest = colon == std::string_view::npos ? std::string_view{} : text.substr(colon);
        if (host.find_first_of(" \t\r\n[]") != std::string_view::npos) host = {};
    }
    const auto port = rest.empty()             ? default_port
                      : rest.starts_with(':') ? parse_port(rest.substr(1))
                                               : std::uint16_t{0};
    if (host.empty() || port == 0) {
        throw std::invalid_argument("'" + std::string(given) +
                                    "' is not a proxy address: expected host:port, for example"
                                    " proxy:9713");
    }
    return {std::string(host), port};
}

std::vector<Address> parse_addresses(const Servers& servers) {
    std::vector<Address> addresses;
    for (const std::string& text : servers.texts()) {
        std::string_view rest = text;
        for (;;) {
            const auto comma = rest.find(',');
            addresses.push_back(parse_address(rest.substr(0, comma)));
            if (comma == std::string_view::npos) break;
            rest.remove_prefix(comma + 1);
        }
    }
    if (addresses.empty()) {
        throw std::invalid_argument("no proxy address given: expected at least one host:port");
    }
    return addresses;
}

}  // namespace orderlane::detail
