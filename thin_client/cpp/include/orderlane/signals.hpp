// SIGTERM and SIGINT drain a consumer.
#pragma once

#include <orderlane/consumer.hpp>

#include <csignal>
#include <thread>

namespace orderlane {

/// While it lives, SIGTERM and SIGINT stop the consumer; a second one asks handlers to end at once.
///
/// Make it before the program's other threads: it blocks both signals in the thread that makes it,
/// threads started afterwards inherit that, and a thread of its own waits for them. So no code runs
/// in a signal handler. Destroyed, it restores what was.
class StopOnSignals {
public:
    explicit StopOnSignals(Consumer& consumer);
    StopOnSignals(const StopOnSignals&) = delete;
    StopOnSignals& operator=(const StopOnSignals&) = delete;
    ~StopOnSignals();

private:
    sigset_t former_{};
    std::jthread waiter_;
};

}  // namespace orderlane
