// Events while a client connects.
#include "feeder.hpp"

#include <orderlane/orderlane.hpp>

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <mutex>
#include <netinet/in.h>
#include <poll.h>
#include <string_view>
#include <sys/socket.h>
#include <thread>

using namespace orderlane::detail;

namespace {

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

private:
    Descriptor socket_;
    sockaddr_in address_{};
};

bool something_comes(const Descriptor& socket, int within_ms) {
    pollfd polled{socket.get(), POLLIN, 0};
    return ::poll(&polled, 1, within_ms) > 0;
}

}  // namespace

TEST_CASE("a stop during connect prevents pulls") {
    const Listener listener;
    const auto ahead = listener.connect();  // makes the next one wait
    std::mutex mutex;
    Session session(SessionOptions{.group = "g", .client_id = "c", .version = "v"});
    const orderlane::Hooks hooks;
    const Log log([](orderlane::LogLevel, std::string_view) {});
    Feeder feeder({mutex, session, hooks, log, [] {}},
                  Proxies(listener.address().text(), {}, std::chrono::seconds(10)));
    {
        const std::lock_guard lock(mutex);
        feeder.start();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(500));  // time to connect
    {
        const std::lock_guard lock(mutex);
        session.stop(now_ns());
    }
    const auto first = listener.accept();
    const auto second = listener.accept();  // the second try, after a second
    CHECK_FALSE(something_comes(second, 200));
    feeder.close();
}
