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

/// Calls enter when they are made, and leave when they have ended. When one fails, the calls behind
/// it that wait with its keys must not be sent: the application may send the failed messages again.
/// Calls ahead of it are sent: a waiting call may end before them, because its time is up. Failures
/// are remembered only while calls wait.
class SendOrder {
public:
    /// Returns the call's number.
    std::uint64_t enter();
    /// True if all earlier calls have left.
    [[nodiscard]] bool is_turn_of(std::uint64_t call) const;
    /// Ends a call; `failed` are the keys of messages it did not store.
    void leave(std::uint64_t call, const std::vector<SendKey>& failed);
    /// True if a call with one of the keys failed that was made before this one and ended after that.
    [[nodiscard]] bool held_back(std::uint64_t call, const std::vector<SendKey>& keys) const;

private:
    /// It holds back the calls behind the failed one, up to the last that was made before it ended.
    struct Failure {
        std::uint64_t call, last;
    };
    void fail(std::uint64_t call, const SendKey& key);

    std::uint64_t last_ = 0;
    std::list<std::uint64_t> inside_;  // in their order
    std::map<SendKey, std::vector<Failure>> failed_;
};

}  // namespace orderlane::detail
