// UTF-8, as far as the wire and the key hash need it. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace orderlane::detail {

/// True for well-formed UTF-8: the proxy could not read the whole request for anything else.
[[nodiscard]] bool is_utf8(std::string_view text) noexcept;

/// At most so many characters of the text, with U+FFFD for what is no UTF-8.
[[nodiscard]] std::string sendable(std::string_view text, std::size_t max_characters);

/// The key that a text stands for: without the blanks around it, as Java's `String.trim` has them.
[[nodiscard]] std::string plain_key(std::string_view text);

/// The UTF-16 units of well-formed UTF-8.
[[nodiscard]] std::u16string utf16_units(std::string_view text);

/// So many random bytes in lower-case hexadecimal digits.
[[nodiscard]] std::string random_hex(std::size_t bytes);

}  // namespace orderlane::detail
