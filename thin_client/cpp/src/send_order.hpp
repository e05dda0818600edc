// The order of a producer's calls: one at a time, in the order of calling, none overtaking a failed
// one of its key. Pure; its owner guards it.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <string>
#include <tuple>
#include <vector>

namespace orderlane::detail {

/// The scope of order: a topic, and the hash of a sharding key or (true) a queue number.
using SendKey = std::tuple<std::string, bool, std::int64_t>;

/// Calls enter when they are made, and leave when they have ended. When one fails, waiting calls of
/// its keys that were made before the failure must not be sent: the application may send the failed
/// messages again. Failures are remembered only while calls wait.
class SendOrder {
public:
    /// Returns the call's number.
    std::uint64_t enter();
    /// True if all earlier calls have left.
    [[nodiscard]] bool is_turn_of(std::uint64_t call) const;
    /// Ends a call; `failed` are the keys of messages it did not store.
    void leave(std::uint64_t call, const std::vector<SendKey>& failed);
    /// True if the call was made before one of its keys failed.
    [[nodiscard]] bool held_back(std::uint64_t call, const std::vector<SendKey>& keys) const;

private:
    std::uint64_t last_ = 0;
    std::list<std::uint64_t> inside_;
    std::map<SendKey, std::uint64_t> failed_;  // the last call made before the key's failure
};

}  // namespace orderlane::detail
