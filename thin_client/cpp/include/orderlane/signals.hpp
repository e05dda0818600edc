// Drains consumers on SIGTERM and SIGINT.
#pragma once

#include <orderlane/consumer.hpp>

#include <csignal>
#include <memory>
#include <thread>
#include <vector>

namespace orderlane {

namespace detail {
class ForkHandler;
}

/// While it exists, SIGTERM and SIGINT stop the consumers; a second signal asks handlers to end at
/// once. There can be only one per process, since signals belong to the process.
///
/// The signal handler only wakes a thread, which calls `stop`. The destructor restores the previous
/// handlers. A child process of fork() has the previous handlers from the start.
class StopOnSignals {
public:
    /// Throws std::logic_error if there is already one, and std::invalid_argument for a null
    /// pointer.
    template <class... Others>
    explicit StopOnSignals(Consumer& consumer, Others&... others)
        : StopOnSignals(std::vector<Consumer*>{&consumer, &others...}) {}
    explicit StopOnSignals(std::vector<Consumer*> consumers);
    StopOnSignals(const StopOnSignals&) = delete;
    StopOnSignals& operator=(const StopOnSignals&) = delete;
    ~StopOnSignals();

private:
    void restore();

    struct sigaction former_term_ {};
    struct sigaction former_int_ {};
    std::jthread waiter_;
    std::unique_ptr<detail::ForkHandler> forked_;
};

}  // namespace orderlane
