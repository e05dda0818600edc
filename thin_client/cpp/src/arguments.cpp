#include "arguments.hpp"

#include "text.hpp"

#include <stdexcept>

namespace orderlane::detail {
namespace {

constexpr std::int64_t largest_count = 1'000'000;

[[noreturn]] void refuse(const std::string& sentence) { throw std::invalid_argument(sentence); }

}  // namespace

void check_text(const char* name, const std::string& text) {
    if (!is_utf8(text)) refuse(std::string(name) + " is not UTF-8");
}

void check_count(const char* name, std::int64_t value, std::int64_t least) {
    if (value >= least && value <= largest_count) return;
    refuse(std::string(name) + " is " + std::to_string(value) + ": expected " +
           std::to_string(least) + " to " + std::to_string(largest_count));
}

void check_length(const char* name, std::chrono::milliseconds length, std::int64_t least_ms) {
    if (length.count() >= least_ms) return;
    refuse(std::string(name) + " is " + std::to_string(length.count()) + " ms: expected " +
           (least_ms == 0 ? "0 or more" : "at least " + std::to_string(least_ms) + " ms"));
}

void check_reader(const std::string& group, const std::vector<std::string>& topics,
                  const std::string& client_id, const std::string& token) {
    if (group.empty()) refuse("group is empty: expected the name of a consumer group");
    check_text("group", group);
    check_text("client_id", client_id);
    check_text("token", token);
    for (const auto& topic : topics) {
        if (topic.empty()) refuse("a topic's name is empty: omit topics to consume all topics");
        check_text("a topic's name", topic);
    }
}

}  // namespace orderlane::detail
