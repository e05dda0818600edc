#include "text.hpp"

#include <optional>
#include <random>

namespace orderlane::detail {
namespace {

/// Decodes the character at `at`, and moves `at` behind it; for malformed bytes returns nothing and
/// moves `at` by one byte.
std::optional<char32_t> next_character(std::string_view text, std::size_t& at) noexcept {
    const auto first = static_cast<unsigned char>(text[at++]);
    if (first < 0x80) return first;
    const int more = first >= 0xC2 && first < 0xE0   ? 1
                     : first >= 0xE0 && first < 0xF0 ? 2
                     : first >= 0xF0 && first < 0xF5 ? 3
                                                     : 0;
    if (more == 0 || at + static_cast<std::size_t>(more) > text.size()) return {};
    char32_t value = first & (0x3F >> more);
    for (int index = 0; index < more; ++index) {
        const auto byte = static_cast<unsigned char>(text[at + static_cast<std::size_t>(index)]);
        if ((byte & 0xC0) != 0x80) return {};
        value = (value << 6) | (byte & 0x3F);
    }
    const bool overlong = (more == 2 && value < 0x800) || (more == 3 && value < 0x10000);
    const bool surrogate = value >= 0xD800 && value < 0xE000;
    if (overlong || surrogate || value > 0x10FFFF) return {};
    at += static_cast<std::size_t>(more);
    return value;
}

}  // namespace

bool is_utf8(std::string_view text) noexcept {
    for (std::size_t at = 0; at < text.size();) {
        if (!next_character(text, at)) return false;
    }
    return true;
}

std::string sendable(std::string_view text, std::size_t max_characters) {
    std::string result;
    std::size_t at = 0;
    for (std::size_t count = 0; count < max_characters && at < text.size(); ++count) {
        const auto begin = at;
        if (next_character(text, at)) {
            result += text.substr(begin, at - begin);
        } else {
            result += "\xEF\xBF\xBD";
        }
    }
    return result;
}

std::string plain_key(std::string_view text) {
    const auto is_blank = [](unsigned char each) { return each <= ' '; };
    while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
    while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
    return std::string(text);
}

std::u16string utf16_units(std::string_view text) {
    std::u16string units;
    units.reserve(text.size());
    for (std::size_t at = 0; at < text.size();) {
        const char32_t value = next_character(text, at).value_or(0xFFFD);
        if (value < 0x10000) {
            units += static_cast<char16_t>(value);
        } else {
            units += static_cast<char16_t>(0xD800 + ((value - 0x10000) >> 10));
            units += static_cast<char16_t>(0xDC00 + ((value - 0x10000) & 0x3FF));
        }
    }
    return units;
}

std::string random_hex(std::size_t bytes) {
    static constexpr char digits[] = "0123456789abcdef";
    std::random_device source;
    std::string text;
    for (std::size_t index = 0; index < bytes; ++index) {
        const auto value = source() & 0xFFU;
        text += digits[value >> 4];
        text += digits[value & 0xF];
    }
    return text;
}

}  // namespace orderlane::detail
