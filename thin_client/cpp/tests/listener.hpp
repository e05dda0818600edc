// A server of which a test decides each step.
#pragma once

#include "address.hpp"
#include "stream.hpp"

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

namespace fake {

using orderlane::detail::Address;
using orderlane::detail::Descriptor;

inline bool something_comes(const Descriptor& socket, int within_ms) {
    pollfd polled{socket.get(), POLLIN, 0};
    return ::poll(&polled, 1, within_ms) > 0;
}

/// A listening socket that accepts only on request, with a backlog of one connection.
class Listener {
public:
    Listener() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        address_.sin_family = AF_INET;
        address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t length = sizeof address_;
        auto* place = reinterpret_cast<sockaddr*>(&address_);
        REQUIRE(::bind(socket_.get(), place, length) == 0);
        REQUIRE(::listen(socket_.get(), 0) == 0);
        REQUIRE(::getsockname(socket_.get(), place, &length) == 0);
    }
    [[nodiscard]] Address address() const { return {"127.0.0.1", ntohs(address_.sin_port)}; }
    [[nodiscard]] Descriptor connect() const {
        Descriptor made(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        const auto* place = reinterpret_cast<const sockaddr*>(&address_);
        REQUIRE(::connect(made.get(), place, sizeof address_) == 0);
        return made;
    }
    [[nodiscard]] Descriptor accept() const {
        return Descriptor(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    }

    /// True if a connection waits to be accepted, within this time.
    [[nodiscard]] bool something_comes(int within_ms) const {
        return fake::something_comes(socket_, within_ms);
    }

private:
    Descriptor socket_;
    sockaddr_in address_{};
};

}  // namespace fake
