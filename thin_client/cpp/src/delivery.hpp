// What a producer sends, and whether to try again. Pure.
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

/// A message as it goes on the wire.
struct WireMessage {
    gen::producer::Message message;
    std::string id;
    /// Seconds since 1970 at which it shall be delivered; nothing: at once.
    std::optional<std::int64_t> deliver_at_s;
    /// What keeps its order, if it keeps one.
    std::optional<SendKey> key;
};

/// Some messages on their way in one request, tried until their deadline. What is known to be
/// stored is not sent again.
class Delivery {
public:
    Delivery(std::vector<WireMessage> messages, Nanos deadline_ns)
        : messages_(std::move(messages)), deadline_ns_(deadline_ns) {}

    [[nodiscard]] Nanos deadline_ns() const noexcept { return deadline_ns_; }
    /// How long the next try may take.
    [[nodiscard]] Nanos try_ns(Nanos now) const;
    /// The messages to send now; a delayed one stands alone.
    [[nodiscard]] std::vector<const WireMessage*> open() const;
    [[nodiscard]] std::vector<std::string> ids() const;
    /// By what those that are not known to be stored keep their order.
    [[nodiscard]] std::vector<SendKey> keys() const;

    /// Nothing if all is stored, else how long to wait before the next try. Throws SendFailed.
    [[nodiscard]] std::optional<Nanos> pause_after(const gen::producer::Result& result, Nanos now,
                                                   double jitter);
    /// How long to wait before the next try; `sent`: the request may have arrived. Throws
    /// SendFailed.
    [[nodiscard]] Nanos pause_after(const Error& error, bool sent, Nanos now, double jitter);
    /// What to throw instead of a first try.
    [[nodiscard]] SendFailed not_sent(const std::string& why) const;
    /// Its messages as failures: they were not tried, since an earlier part of the call failed.
    [[nodiscard]] std::vector<SendFailure> untried() const;
    /// So many tries in a row have failed.
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

/// What a producer puts on every message.
struct Sender {
    std::string token;
    TraceContext trace = {};
    std::int64_t now_s = 0;
};

/// Cuts messages into requests, in their order. Throws std::invalid_argument that says which
/// message cannot be sent, and why.
[[nodiscard]] std::vector<Delivery> deliveries(std::span<const Outgoing> messages,
                                               const Sender& sender, Nanos deadline_ns);

}  // namespace orderlane::detail
