// One message in the application's hands.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

namespace orderlane {

namespace detail {
class LeaseState;
}

/// W3C trace context, as it travels in the properties `traceparent` and `tracestate`.
struct TraceContext {
    std::string traceparent = {};
    std::string tracestate = {};
};

/// One delivery of one message. Copies share the lease, and may outlive the handler.
struct Message {
    std::string topic;
    /// Name of the queue's period of ownership, such as `broker-a_3#1`; opaque.
    std::string queue;
    /// Place in its queue, in messages.
    std::int64_t offset = 0;
    std::string body;
    /// The producer's message key.
    std::optional<std::string> key;
    /// The value by which the message keeps its order: bytes; nothing if it is in no order.
    std::optional<std::string> order_key;
    std::optional<std::string> tag;
    std::map<std::string, std::string> properties;
    /// Which hand-out this is, 1 for the first.
    int attempt = 1;
    /// Milliseconds since 1970, by the producer's clock.
    std::optional<std::int64_t> born_at_ms;
    /// Unique, the same over redeliveries and a producer's retries: for de-duplication.
    std::optional<std::string> message_id;
    std::int64_t lease_id = 0;

    /// When the producer made it; nothing if unknown.
    [[nodiscard]] std::optional<std::chrono::system_clock::time_point> born_at() const;
    /// The trace it belongs to; both texts are empty if the producer gave none.
    [[nodiscard]] TraceContext trace() const;
    /// Until the lease ends unless extended; negative if that has passed.
    [[nodiscard]] std::chrono::nanoseconds time_left() const;
    /// True once the proxy has said that someone else may get the message: stop if you can.
    [[nodiscard]] bool lease_lost() const noexcept;
    /// Stop is requested when the lease is lost, or when the time to drain is up.
    [[nodiscard]] std::stop_token stop_token() const;
    /// Throws Stopped if stop was requested.
    void throw_if_stopped() const;
    /// `orders/broker-a_3#1 at offset 7 (attempt 1)`, for logs.
    [[nodiscard]] std::string describe() const;

    /// The library's side of the lease.
    std::shared_ptr<detail::LeaseState> lease;
};

}  // namespace orderlane
