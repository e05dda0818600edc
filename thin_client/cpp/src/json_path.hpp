// The value at a path of a JSON body, as a sharding key. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace orderlane::detail {

/// `$.a.b[0]['a name']`: a sequence of names and indexes.
class JsonPath {
public:
    /// Throws std::invalid_argument with an explanation for any other path.
    explicit JsonPath(std::string_view text);

    /// Returns a string without surrounding blanks, any other value as canonical JSON: members
    /// sorted, no spaces, 64-bit integers in full, other numbers as doubles in the fewest digits
    /// that round-trip. Nothing if the value is missing or null. Throws std::invalid_argument if
    /// the body is not JSON, or the value is nested too deeply.
    [[nodiscard]] std::optional<std::string> find(std::string_view body) const;

private:
    std::vector<std::variant<std::string, std::size_t>> steps_;
};

}  // namespace orderlane::detail
