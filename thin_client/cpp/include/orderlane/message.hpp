// One message delivered to the application.
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

/// W3C trace context, from the properties `traceparent` and `tracestate`.
struct TraceContext {
    std::string traceparent = {};
    std::string tracestate = {};
};

/// One delivery of one message. Copies share the lease, and may outlive the handler.
struct Message {
    std::string topic;
    /// The queue and its ownership period, for example `broker-a_3#1`; opaque.
    std::string queue;
    /// Position in the queue, in messages.
    std::int64_t offset = 0;
    std::string body;
    /// The producer's message key.
    std::optional<std::string> key;
    /// The order key's value as bytes; nothing if unordered.
    std::optional<std::string> order_key;
    std::optional<std::string> tag;
    std::map<std::string, std::string> properties;
    /// Counts deliveries, 1 for the first.
    int attempt = 1;
    /// The producer's timestamp: milliseconds since 1970.
    std::optional<std::int64_t> born_at_ms;
    /// Unique, and the same over redeliveries and the producer's retries: for deduplication.
    std::optional<std::string> message_id;
    std::int64_t lease_id = 0;

    /// The producer's timestamp; nothing if unknown.
    [[nodiscard]] std::optional<std::chrono::system_clock::time_point> born_at() const;
    /// The producer's trace context; empty if absent.
    [[nodiscard]] TraceContext trace() const;
    /// Time until the lease expires unless extended; negative if expired.
    [[nodiscard]] std::chrono::nanoseconds time_left() const;
    /// True once the message may be delivered to another client: stop if you can.
    [[nodiscard]] bool lease_lost() const noexcept;
    /// A stop is requested when the lease is lost or the drain times out.
    [[nodiscard]] std::stop_token stop_token() const;
    /// Throws Stopped if a stop was requested.
    void throw_if_stopped() const;
    /// `orders/broker-a_3#1 at offset 7 (attempt 1)`, for logs.
    [[nodiscard]] std::string describe() const;

    /// The library's side of the lease.
    std::shared_ptr<detail::LeaseState> lease;
};

}  // namespace orderlane
