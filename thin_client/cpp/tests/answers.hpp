// Sessions and answers for tests; times count from `start`.
#pragma once

#include "session.hpp"

#include <doctest/doctest.h>
#include <string>
#include <vector>

namespace answers {

using orderlane::Message;
using orderlane::Outcome;
using orderlane::detail::Control;
using orderlane::detail::Nanos;
using orderlane::detail::Session;
using orderlane::detail::SessionOptions;
using orderlane::detail::ms;
namespace wire = orderlane::gen::consumer;

constexpr Nanos start = 1'000'000 * ms;

inline Session session_with(std::size_t concurrency = 2, std::size_t prefetch = 2) {
    return Session(SessionOptions{.group = "g",
                                  .client_id = "c",
                                  .version = "v",
                                  .concurrency = concurrency,
                                  .prefetch = prefetch});
}

struct From {
    std::string home = "a:1";
    int lease_ms = 3000;
    /// The order key of all messages; by default each has its number.
    std::string key = {};
};

/// Adds a message; without a key it is unordered.
inline void add(wire::PullResponse& response, std::int64_t number, const std::string& key) {
    auto& message = response.messages.emplace_back();
    message.__set_leaseId(number);
    message.__set_offset(number);
    message.__set_value("");
    message.__isset.offset = message.__isset.value = true;  // as decoding does
    if (!key.empty()) message.__set_orderKey(key);
}

inline wire::PullResponse answer(const std::vector<int>& numbers, const From& from = {}) {
    wire::PullResponse response;
    wire::Context context;
    context.__set_groupId("g");
    context.__set_topic("t");
    context.__set_qid("q#1");
    response.__set_context(context);
    response.__set_leaseMs(from.lease_ms);
    response.__set_home(from.home);
    for (const int number : numbers) {
        add(response, number, from.key.empty() ? std::to_string(number) : from.key);
    }
    return response;
}

inline std::vector<Message> take_all(Session& session, Nanos now) {
    std::vector<Message> taken;
    for (auto next = session.take(now); !next.empty(); next = session.take(now)) {
        taken.push_back(next.front());
    }
    return taken;
}

/// Pulls these messages and takes as many as handlers may have.
inline std::vector<Message> pulled(Session& session, const std::vector<int>& numbers,
                                   Nanos now = start, const From& from = {}) {
    static_cast<void>(session.begin_pull(now));
    session.pull_answered(answer(numbers, from), now);
    return take_all(session, now);
}

/// The only settle that is due.
inline wire::AckBatch settled(Session& session, const std::string& home, Nanos now) {
    const auto control = session.begin_control(session.homes().at(home), now);
    REQUIRE(std::holds_alternative<wire::AckRequest>(control));
    const auto& request = std::get<wire::AckRequest>(control);
    REQUIRE(request.acks.size() == 1);
    return request.acks.front();
}

inline wire::ExtendRequest extended(Session& session, const std::string& home, Nanos now) {
    const auto control = session.begin_control(session.homes().at(home), now);
    REQUIRE(std::holds_alternative<wire::ExtendRequest>(control));
    return std::get<wire::ExtendRequest>(control);
}

inline bool nothing_due(Session& session, const std::string& home, Nanos now) {
    return std::holds_alternative<std::monostate>(
        session.begin_control(session.homes().at(home), now));
}

}  // namespace answers
