#include "json_path.hpp"

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
                                "' is not served: expected members and elements only, as in"
                                " $.order.lines[0]['customer id']");
}

/// The name at the beginning: letters, digits, _ and -, beginning with a letter or _. What is not
/// ASCII counts as a letter.
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

std::string canonical(const Json& value) {
    if (value.is_string()) return value.get<std::string>();
    if (value.is_number_float()) {
        const auto number = value.get<double>();
        const bool is_whole = std::trunc(number) == number;
        if (is_whole && number >= -0x1p63 && number < 0x1p63) {
            return std::to_string(static_cast<std::int64_t>(number));
        }
        if (is_whole && number >= 0 && number < 0x1p64) {
            return std::to_string(static_cast<std::uint64_t>(number));
        }
    }
    return value.dump();
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
    const auto document = Json::parse(body, nullptr, false);
    if (document.is_discarded()) {
        throw std::invalid_argument(
            "the body is no JSON, so its sharding path finds nothing in it");
    }
    const Json* value = &document;
    for (const auto& step : steps_) {
        if (const auto* member = std::get_if<std::string>(&step)) {
            const auto found = value->find(*member);  // of what is no object: end
            if (found == value->end()) return {};
            value = &*found;
        } else {
            const auto index = std::get<std::size_t>(step);
            if (!value->is_array() || index >= value->size()) return {};
            value = &(*value)[index];
        }
    }
    if (value->is_null()) return {};
    return canonical(*value);
}

}  // namespace orderlane::detail
