// Checks of options and arguments. Each throws std::invalid_argument with one sentence.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace orderlane::detail {

/// Refuses a text that no proxy can read. The sentence does not show it: it may be a token.
void check_text(const char* name, const std::string& text);

/// Refuses a number of messages or keys below `least` or above a million: sums of them must fit the
/// wire's 32 bits.
void check_count(const char* name, std::int64_t value, std::int64_t least);

/// Refuses a time below `least_ms`.
void check_length(const char* name, std::chrono::milliseconds length, std::int64_t least_ms);

/// Checks the names that consumers and pullers have.
void check_reader(const std::string& group, const std::vector<std::string>& topics,
                  const std::string& client_id, const std::string& token);

}  // namespace orderlane::detail
