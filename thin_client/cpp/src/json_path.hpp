// The value at a path of a JSON body, as the text of a sharding key. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace orderlane::detail {

/// `$.a.b[0]['a name']`: members and elements, one after the other.
class JsonPath {
public:
    /// Throws std::invalid_argument, in a sentence, for anything else.
    explicit JsonPath(std::string_view text);

    /// Strings as they are, anything else as canonical JSON: members sorted, no blanks, and whole
    /// numbers without a fraction. Nothing if there is nothing there, or null. Throws
    /// std::invalid_argument if the body is no JSON.
    [[nodiscard]] std::optional<std::string> find(std::string_view body) const;

private:
    std::vector<std::variant<std::string, std::size_t>> steps_;
};

}  // namespace orderlane::detail
