#include <orderlane/message.hpp>
#include <orderlane/outcome.hpp>

#include "clock.hpp"
#include "lease_state.hpp"

#include <stdexcept>
#include <time.h>

namespace orderlane {

std::optional<std::chrono::system_clock::time_point> Message::born_at() const {
    if (!born_at_ms) return {};
    return std::chrono::system_clock::time_point(std::chrono::milliseconds(*born_at_ms));
}

TraceContext Message::trace() const {
    const auto text = [this](const char* name) {
        const auto found = properties.find(name);
        return found == properties.end() ? std::string() : found->second;
    };
    return {text("traceparent"), text("tracestate")};
}

std::chrono::nanoseconds Message::time_left() const {
    return std::chrono::nanoseconds(lease ? lease->deadline_ns - detail::now_ns() : 0);
}

bool Message::lease_lost() const noexcept { return lease && lease->lost; }

std::stop_token Message::stop_token() const {
    return lease ? lease->stop.get_token() : std::stop_token();
}

void Message::throw_if_stopped() const {
    if (stop_token().stop_requested()) throw Stopped();
}

std::string Message::describe() const {
    return topic + "/" + queue + " at offset " + std::to_string(offset) + " (attempt " +
           std::to_string(attempt) + ")";
}

Outcome Outcome::retry_after(std::chrono::milliseconds pause) {
    if (pause.count() < 0) {
        throw std::invalid_argument("the pause before a retry is " +
                                    std::to_string(pause.count()) +
                                    " ms: expected 0 or more");
    }
    Outcome outcome(Kind::retry);
    outcome.pause_ = pause;
    return outcome;
}

const char* name_of(Outcome::Kind kind) noexcept {
    switch (kind) {
        case Outcome::Kind::ok: return "ok";
        case Outcome::Kind::retry: return "retry";
        case Outcome::Kind::reject: return "reject";
        case Outcome::Kind::defer: return "defer";
    }
    return "";
}

namespace detail {

Nanos now_ns() noexcept {
    timespec now{};
    clock_gettime(CLOCK_BOOTTIME, &now);
    return Nanos{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace detail

}  // namespace orderlane
