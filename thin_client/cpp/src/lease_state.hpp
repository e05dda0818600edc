// What changes about a lease while its message is in the application's hands. Thread-safe.
#pragma once

#include "clock.hpp"

#include <atomic>
#include <optional>
#include <stop_token>

namespace orderlane::detail {

class LeaseState {
public:
    explicit LeaseState(Nanos deadline) : deadline_ns(deadline) {}

    /// When the lease ends unless extended, on `now_ns`.
    std::atomic<Nanos> deadline_ns;
    /// True once the proxy has said, or its silence means, that someone else may get the message.
    std::atomic<bool> lost = false;
    /// Asks the handler to end.
    std::stop_source stop;
    /// The source of the batch that it is handled in; set before a handler sees the message.
    std::optional<std::stop_source> batch_stop;

    /// Runs callbacks of the application: never call it under a lock.
    void request_stop() {
        stop.request_stop();
        if (batch_stop) batch_stop->request_stop();
    }
};

}  // namespace orderlane::detail
