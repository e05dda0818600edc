#include <orderlane/signals.hpp>

#include "stream.hpp"

#include <array>
#include <cerrno>
#include <poll.h>
#include <pthread.h>
#include <stop_token>
#include <sys/signalfd.h>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace orderlane {
namespace {

sigset_t stop_signals() {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    return set;
}

}  // namespace

StopOnSignals::StopOnSignals(Consumer& consumer) {
    const sigset_t set = stop_signals();
    pthread_sigmask(SIG_BLOCK, &set, &former_);
    detail::Descriptor signals(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
    if (signals.get() < 0) throw std::system_error(errno, std::generic_category(), "signalfd");
    waiter_ = std::jthread([&consumer, signals = std::move(signals)](const std::stop_token& stop) {
        detail::Interrupt end;
        const std::stop_callback trip(stop, [&end] { end.trip(); });
        for (;;) {
            std::array<pollfd, 2> polled{pollfd{signals.get(), POLLIN, 0},
                                         pollfd{end.descriptor(), POLLIN, 0}};
            ::poll(polled.data(), polled.size(), -1);
            if (stop.stop_requested()) return;
            signalfd_siginfo signal{};
            if (::read(signals.get(), &signal, sizeof signal) > 0) consumer.stop();
        }
    });
}

StopOnSignals::~StopOnSignals() {
    waiter_.request_stop();
    waiter_.join();
    pthread_sigmask(SIG_SETMASK, &former_, nullptr);
}

}  // namespace orderlane
