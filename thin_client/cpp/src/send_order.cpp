#include "send_order.hpp"

#include <algorithm>

namespace orderlane::detail {

std::uint64_t SendOrder::enter() {
    inside_.push_back(++last_);
    return last_;
}

bool SendOrder::is_turn_of(std::uint64_t call) const { return inside_.front() == call; }

void SendOrder::leave(std::uint64_t call, const std::vector<SendKey>& failed) {
    inside_.remove(call);
    for (const auto& key : failed) failed_[key] = last_;
    if (inside_.empty()) failed_.clear();
}

bool SendOrder::held_back(std::uint64_t call, const std::vector<SendKey>& keys) const {
    return std::any_of(keys.begin(), keys.end(), [&](const SendKey& key) {
        const auto found = failed_.find(key);
        return found != failed_.end() && found->second >= call;
    });
}

}  // namespace orderlane::detail
