// Events while a client connects.
#include "feeder.hpp"
#include "listener.hpp"

#include <orderlane/orderlane.hpp>

#include <doctest/doctest.h>
#include <mutex>
#include <string_view>
#include <thread>

using namespace orderlane::detail;
using fake::Listener;
using fake::something_comes;

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
