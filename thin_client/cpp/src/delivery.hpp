// A producer's requests and retries. Pure.
#pragma once

#include <orderlane/producer.hpp>

#include "clock.hpp"
#include "producer_proxy_types.h"
#include "send_order.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace orderlane::detail {

/// A message in wire form.
struct WireMessage {
    gen::producer::Message message;
    std::string id;
    /// Delivery time in seconds since 1970; nothing: at once.
    std::optional<std::int64_t> deliver_at_s;
    /// Its scope of order; nothing: unordered.
    std::optional<SendKey> key;
};

/// The messages of one request, tried until its deadline. Messages known to be stored are not sent
/// again.
class Delivery {
public:
    Delivery(std::vector<WireMessage> messages, Nanos deadline_ns)
        : messages_(std::move(messages)), deadline_ns_(deadline_ns) {}

    [[nodiscard]] Nanos deadline_ns() const noexcept { return deadline_ns_; }
    /// Limit of the next try.
    [[nodiscard]] Nanos try_ns(Nanos now) const;
    /// The messages to send now; a delayed one is alone.
    [[nodiscard]] std::vector<const WireMessage*> open() const;
    [[nodiscard]] std::vector<std::string> ids() const;
    /// The order keys of messages not known to be stored.
    [[nodiscard]] std::vector<SendKey> keys() const;

    /// Nothing if all is stored, else the wait before the next try. Throws SendFailed.
    [[nodiscard]] std::optional<Nanos> pause_after(const gen::producer::Result& result, Nanos now,
                                                   double jitter);
    /// The wait before the next try; `sent`: the request may have arrived. Throws SendFailed.
    [[nodiscard]] Nanos pause_after(const Error& error, bool sent, Nanos now, double jitter);
    /// The exception instead of a first try.
    [[nodiscard]] SendFailed not_sent(const std::string& why) const;
    /// Failures of its messages, which were not tried because an earlier part of the call failed.
    [[nodiscard]] std::vector<SendFailure> untried() const;
    /// The number of consecutive failed tries.
    [[nodiscard]] int failures() const noexcept { return failures_; }

private:
    struct Reason {
        std::string text;
        std::optional<int> code;
    };

    [[nodiscard]] std::vector<std::size_t> open_indexes() const;
    [[nodiscard]] Nanos pause(const std::map<std::size_t, Reason>& reasons,
                              std::optional<int> code, bool again, Nanos now, double jitter);
    [[nodiscard]] std::string sentence(const std::string& why, const char* end) const;

    std::vector<WireMessage> messages_;
    Nanos deadline_ns_;
    std::set<std::size_t> stored_;
    std::set<std::size_t> doubtful_;  // may be stored
    int failures_ = 0;
};

/// Fields that a producer sets on every message.
struct Sender {
    std::string token;
    TraceContext trace = {};
    Nanos wall_ns = 0;  // since 1970: the start of delays
};

/// Splits messages into requests, in order. Throws std::invalid_argument for an invalid message,
/// with an explanation.
[[nodiscard]] std::vector<Delivery> deliveries(std::span<const Outgoing> messages,
                                               const Sender& sender, Nanos deadline_ns);

}  // namespace orderlane::detail
