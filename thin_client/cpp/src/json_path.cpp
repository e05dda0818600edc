#include "json_path.hpp"

#include "text.hpp"

#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace orderlane::detail {
namespace {

using Json = nlohmann::json;

[[noreturn]] void refuse(std::string_view text) {
    throw std::invalid_argument("sharding path '" + std::string(text) +
                                "' is not valid: expected names and indexes only, for example"
                                " $.order.lines[0]['customer id']");
}

/// The leading name: letters, digits, _ and -, starting with a letter or _. Non-ASCII characters
/// count as letters.
std::string_view word(std::string_view text) {
    const auto begins = [](unsigned char c) { return std::isalpha(c) != 0 || c == '_' || c > 127; };
    std::size_t length = 0;
    for (const unsigned char each : text) {
        const bool goes_on = length > 0 && (std::isdigit(each) != 0 || each == '-');
        if (!begins(each) && !goes_on) break;
        ++length;
    }
    return text.substr(0, length);
}

/// 64-bit integers in full, other numbers in the fewest digits that round-trip.
std::string number_text(double number) {
    const bool is_whole = std::trunc(number) == number;
    if (is_whole && number >= -0x1p63 && number < 0x1p63) {
        return std::to_string(static_cast<std::int64_t>(number));
    }
    if (is_whole && number >= 0 && number < 0x1p64) {
        return std::to_string(static_cast<std::uint64_t>(number));
    }
    const bool is_plain = std::abs(number) >= 1e-5 && std::abs(number) < 0x1p63;
    std::array<char, 64> digits{};
    const auto format = is_plain ? std::chars_format::fixed : std::chars_format::scientific;
    const auto written =
        std::to_chars(digits.data(), digits.data() + digits.size(), number, format);
    std::string text(digits.data(), written.ptr);
    if (!is_plain) {  // e-07 becomes e-7
        const auto exponent = text.find('e') + 2;
        text.erase(exponent, text.find_first_not_of('0', exponent) - exponent);
    }
    return text;
}

/// Canonical JSON; `room`: remaining depth of arrays and objects.
std::string canonical(const Json& value, int room = 100) {
    if (value.is_number_float()) return number_text(value.get<double>());
    if (!value.is_structured()) return value.dump();
    if (room == 0) {
        throw std::invalid_argument(
            "the sharding key nests more than 100 arrays and objects");
    }
    std::string text;
    for (const auto& [name, each] : value.items()) {  // an object's are sorted
        if (!text.empty()) text += ',';
        if (value.is_object()) text += Json(name).dump() + ':';
        text += canonical(each, room - 1);
    }
    return value.is_object() ? '{' + text + '}' : '[' + text + ']';
}

}  // namespace

JsonPath::JsonPath(std::string_view text) {
    if (!text.starts_with('$') || text.size() < 2) refuse(text);
    for (auto rest = text.substr(1); !rest.empty();) {
        if (rest.starts_with("['") || rest.starts_with("[\"")) {
            const char quote = rest[1];
            const auto end = rest.find(quote, 2);
            if (end == rest.npos || !rest.substr(end + 1).starts_with(']')) refuse(text);
            const auto name = rest.substr(2, end - 2);
            if (name.find('\\') != name.npos) refuse(text);
            steps_.emplace_back(std::string(name));
            rest.remove_prefix(end + 2);
        } else if (rest.starts_with('[')) {
            std::size_t index = 0;
            const auto* begin = rest.data() + 1;
            const auto [end, error] = std::from_chars(begin, rest.data() + rest.size(), index);
            const auto length = static_cast<std::size_t>(end - begin);
            const bool padded = length > 1 && *begin == '0';
            if (error != std::errc{} || padded || !rest.substr(1 + length).starts_with(']')) {
                refuse(text);
            }
            steps_.emplace_back(index);
            rest.remove_prefix(length + 2);
        } else {
            const auto name = rest.starts_with('.') ? word(rest.substr(1)) : std::string_view();
            if (name.empty()) refuse(text);
            steps_.emplace_back(std::string(name));
            rest.remove_prefix(name.size() + 1);
        }
    }
}

std::optional<std::string> JsonPath::find(std::string_view body) const {
    // The parser would skip a mark at the beginning, and take a null character for the end.
    const bool is_text = !body.starts_with("\xef\xbb\xbf") && body.find('\0') == body.npos;
    const auto document = is_text ? Json::parse(body, nullptr, false)
                                  : Json(Json::value_t::discarded);
    if (document.is_discarded()) {
        throw std::invalid_argument(
            "cannot read the sharding key: the body is not JSON");
    }
    const Json* value = &document;
    for (const auto& step : steps_) {
        if (const auto* member = std::get_if<std::string>(&step)) {
            const auto found = value->find(*member);  // end unless an object
            if (found == value->end()) return {};
            value = &*found;
        } else {
            const auto index = std::get<std::size_t>(step);
            if (!value->is_array() || index >= value->size()) return {};
            value = &(*value)[index];
        }
    }
    if (value->is_null()) return {};
    if (value->is_string()) return plain_key(value->get_ref<const std::string&>());
    return canonical(*value);
}

}  // namespace orderlane::detail
