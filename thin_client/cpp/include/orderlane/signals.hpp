// SIGTERM and SIGINT drain consumers.
#pragma once

#include <orderlane/consumer.hpp>

#include <csignal>
#include <thread>
#include <vector>

namespace orderlane {

/// While it lives, SIGTERM and SIGINT stop the consumers; a second one asks handlers to end at
/// once. There can be one at a time in a process, since signals belong to the process.
///
/// The handler of the signals only wakes a thread, which calls `stop`. Destroyed, it restores what
/// was.
class StopOnSignals {
public:
    /// Throws std::logic_error if there is another one.
    template <class... Others>
    explicit StopOnSignals(Consumer& consumer, Others&... others)
        : StopOnSignals(std::vector<Consumer*>{&consumer, &others...}) {}
    explicit StopOnSignals(std::vector<Consumer*> consumers);
    StopOnSignals(const StopOnSignals&) = delete;
    StopOnSignals& operator=(const StopOnSignals&) = delete;
    ~StopOnSignals();

private:
    struct sigaction former_term_ {};
    struct sigaction former_int_ {};
    std::jthread waiter_;
};

}  // namespace orderlane
