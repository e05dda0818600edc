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
    for (const auto& key : failed) fail(call, key);
    if (inside_.empty()) failed_.clear();
}

void SendOrder::fail(std::uint64_t call, const SendKey& key) {
    auto& failures = failed_[key];
    if (!failures.empty() && failures.back().call <= call && call <= failures.back().last) {
        failures.back().last = last_;
        return;
    }
    std::erase_if(failures, [&](const Failure& each) {
        return each.call >= call || inside_.empty() || each.last < inside_.front();
    });
    failures.push_back({call, last_});
}

bool SendOrder::held_back(std::uint64_t call, const std::vector<SendKey>& keys) const {
    return std::any_of(keys.begin(), keys.end(), [&](const SendKey& key) {
        const auto found = failed_.find(key);
        return found != failed_.end() &&
               std::any_of(found->second.begin(), found->second.end(), [&](const Failure& each) {
                   return each.call < call && call <= each.last;
               });
    });
}

}  // namespace orderlane::detail
