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

    /// Strings without the blanks around them, anything else as canonical JSON: members sorted, no
    /// blanks, whole numbers of 64 bits in full and others as doubles in as few digits as name them.
    /// Nothing if there is nothing there, or null. Throws std::invalid_argument if the body is no
    /// JSON, or the value is nested too deep.
    [[nodiscard]] std::optional<std::string> find(std::string_view body) const;

private:
    std::vector<std::variant<std::string, std::size_t>> steps_;
};

}  // namespace orderlane::detail
