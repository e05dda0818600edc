#include "connection.hpp"

#include "calls.hpp"
#include "forks.hpp"

#include <array>
#include <cstdio>
#include <memory>
#include <random>

namespace orderlane::detail {
namespace {

using Kind = StreamError::Kind;

Stream connect(const Destination& to, const Interrupt& interrupt, Nanos timeout_ns) {
    try {
        return Stream(to, interrupt, now_ns() + timeout_ns);
    } catch (const StreamError& error) {
        const auto text = "no connection to " + to.address.text();
        if (error.kind() == Kind::timeout) {
            throw ConnectionLost(text + " within " + seconds_text(timeout_ns));
        }
        throw ConnectionLost(text + ": " + error.what());
    }
}

}  // namespace

std::string seconds_text(Nanos length) {
    char text[32];
    std::snprintf(text, sizeof text, "%g s", static_cast<double>(length) / 1e9);
    return text;
}

Connection::Connection(const Destination& to, const Interrupt& interrupt, Nanos timeout_ns)
    : address_(to.address),
      stream_(connect(to, interrupt, timeout_ns)),
      sequence_id_(std::uniform_int_distribution<std::int32_t>(
          0, std::numeric_limits<std::int32_t>::max())(*std::make_unique<std::random_device>())) {}

void abandon(std::optional<Connection>& connection) noexcept {
    if (connection) connection->abandon();
    make_anew(connection);
}

std::string Connection::exchange(const char* method, const std::string& frame, Nanos timeout_ns) {
    const Nanos deadline = now_ns() + timeout_ns;
    const auto proxy = address_.text();
    try {
        stream_.write(frame, deadline);
        std::array<char, 4> prefix{};
        stream_.read(prefix, deadline);
        std::string payload(frame_length(prefix), '\0');
        stream_.read(payload, deadline);
        return payload;
    } catch (const StreamError& error) {
        switch (error.kind()) {
            case Kind::timeout:
                throw ConnectionLost(proxy + " did not answer " + method + " within " +
                                     seconds_text(timeout_ns));
            case Kind::ended:
                throw ConnectionLost(proxy + " closed the connection during " + method, true);
            case Kind::interrupted:
                throw ConnectionLost("the connection to " + proxy + " was closed");
            case Kind::broke: break;
        }
        throw ConnectionLost(
            "the connection to " + proxy + " broke during " + method + ": " + error.what(), true);
    }
}

}  // namespace orderlane::detail
