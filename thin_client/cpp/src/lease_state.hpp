// The state of a lease that changes while the application has its message. Thread-safe.
#pragma once

#include "clock.hpp"

#include <atomic>
#include <optional>
#include <stop_token>

namespace orderlane::detail {

class LeaseState {
public:
    explicit LeaseState(Nanos deadline) : deadline_ns(deadline) {}

    /// When the lease expires unless extended, on `now_ns`.
    std::atomic<Nanos> deadline_ns;
    /// True once the message may be delivered to another client.
    std::atomic<bool> lost = false;
    /// Asks the handler to end.
    std::stop_source stop;
    /// The stop source of its batch; set before a handler sees the message.
    std::optional<std::stop_source> batch_stop;

    /// Runs callbacks of the application: do not call it under a lock.
    void request_stop() {
        stop.request_stop();
        if (batch_stop) batch_stop->request_stop();
    }
};

}  // namespace orderlane::detail
