#include <orderlane/signals.hpp>

#include "forks.hpp"
#include "stream.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <stdexcept>
#include <sys/eventfd.h>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace orderlane {
namespace {

/// The signal handler's target; -1: none. A handler receives only the signal's number, so this must
/// be global to the process.
std::atomic<int> event{-1};
static_assert(std::atomic<int>::is_always_lock_free);

constexpr std::uint64_t one_signal = 1;
/// Beyond any count of signals: ends the waiter.
constexpr std::uint64_t the_end = std::uint64_t{1} << 32;

void on_signal(int) {
    const int saved = errno;
    const int to = event;
    if (to >= 0 && ::write(to, &one_signal, sizeof one_signal) < 0) {
        // The counter is full: the waiter will wake up anyway.
    }
    errno = saved;
}

}  // namespace

StopOnSignals::StopOnSignals(std::vector<Consumer*> consumers) {
    if (std::find(consumers.begin(), consumers.end(), nullptr) != consumers.end()) {
        throw std::invalid_argument("a consumer of StopOnSignals is null: expected consumers");
    }
    detail::Descriptor made(::eventfd(0, EFD_CLOEXEC));
    if (made.get() < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
    int none = -1;
    if (!event.compare_exchange_strong(none, made.get())) {
        throw std::logic_error(
            "there is already a StopOnSignals: pass all consumers to a single one");
    }
    waiter_ = std::jthread([consumers = std::move(consumers), made = std::move(made)] {
        std::uint64_t count = 0;
        while (::read(made.get(), &count, sizeof count) > 0 && count < the_end) {
            for (; count > 0; --count) {
                for (auto* consumer : consumers) consumer->stop();
            }
        }
    });
    struct sigaction action {};
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    ::sigaction(SIGTERM, &action, &former_term_);
    ::sigaction(SIGINT, &action, &former_int_);
    // A signal to a child process would reach the parent's waiter: both share the event.
    forked_ = std::make_unique<detail::ForkHandler>([this] {
        restore();
        event = -1;
        detail::make_anew(waiter_);  // no such thread here: cannot be joined
    });
}

void StopOnSignals::restore() {
    ::sigaction(SIGTERM, &former_term_, nullptr);
    ::sigaction(SIGINT, &former_int_, nullptr);
}

StopOnSignals::~StopOnSignals() {
    forked_.reset();
    if (!waiter_.joinable()) return;  // in a child process
    restore();
    const int to = event.exchange(-1);
    [[maybe_unused]] const auto written = ::write(to, &the_end, sizeof the_end);
    waiter_.join();
}

}  // namespace orderlane
