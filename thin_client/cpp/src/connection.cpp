#include "connection.hpp"

#include "calls.hpp"

#include <array>
#include <cstdio>

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
    : address_(to.address), stream_(connect(to, interrupt, timeout_ns)) {}

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
