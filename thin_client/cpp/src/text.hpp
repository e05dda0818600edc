// UTF-8 helpers for the wire and the key hash. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace orderlane::detail {

/// True for well-formed UTF-8; with anything else the proxy could not decode the request.
[[nodiscard]] bool is_utf8(std::string_view text) noexcept;

/// At most `max_characters` of the text, with U+FFFD for malformed bytes.
[[nodiscard]] std::string sendable(std::string_view text, std::size_t max_characters);

/// The text without surrounding blanks, as Java's `String.trim` defines them.
[[nodiscard]] std::string plain_key(std::string_view text);

/// The UTF-16 units of well-formed UTF-8.
[[nodiscard]] std::u16string utf16_units(std::string_view text);

/// Random bytes as lower-case hexadecimal digits.
[[nodiscard]] std::string random_hex(std::size_t bytes);

}  // namespace orderlane::detail
