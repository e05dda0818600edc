// Allocations and threads that fail: no message is held, and no late answer is read.
#include "fake_proxy.hpp"
#include "listener.hpp"

#include <orderlane/orderlane.hpp>

#include <atomic>
#include <chrono>
#include <cerrno>
#include <cstdlib>
#include <dlfcn.h>
#include <doctest/doctest.h>
#include <exception>
#include <limits>
#include <new>
#include <pthread.h>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <unistd.h>

using namespace std::chrono_literals;
using orderlane::LogLevel;

namespace {

constexpr std::size_t everything = std::numeric_limits<std::size_t>::max();
constexpr std::size_t one_mib = 1 << 20;
/// Larger allocations fail.
std::atomic<std::size_t> largest = everything;

/// This thread cannot start others.
thread_local bool is_alone = false;

struct LittleMemory {
    LittleMemory() { largest = one_mib; }
    ~LittleMemory() { largest = everything; }
};

}  // namespace

extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                              void* (*body)(void*), void* argument) noexcept {
    if (is_alone) return EAGAIN;
    static const auto create =
        reinterpret_cast<decltype(&pthread_create)>(::dlsym(RTLD_NEXT, "pthread_create"));
    return create(thread, attributes, body, argument);
}

void* operator new(std::size_t size) {
    void* made = size <= largest ? std::malloc(size == 0 ? 1 : size) : nullptr;
    if (made == nullptr) throw std::bad_alloc();
    return made;
}
void operator delete(void* block) noexcept { std::free(block); }
void operator delete(void* block, std::size_t) noexcept { std::free(block); }

namespace {

/// Its text cannot be copied with little memory.
struct LongStory : std::exception {
    [[nodiscard]] const char* what() const noexcept override {
        static const std::string text(4 * one_mib, 'x');
        return text.c_str();
    }
};

/// Accepts one connection, and begins an answer of 2 MiB there.
std::jthread begin_answer(const fake::Listener& listener) {
    return std::jthread([&listener](const std::stop_token& stop) {
        const auto socket = listener.accept();
        constexpr char prefix[] = {0x00, 0x20, 0x00, 0x00};
        CHECK(::write(socket.get(), prefix, sizeof prefix) == 4);
        while (!stop.stop_requested()) std::this_thread::sleep_for(1ms);
    });
}

}  // namespace

TEST_CASE("a message whose exception cannot be described is retried") {
    static_cast<void>(LongStory().what());
    fake::Proxy proxy;
    proxy.messages->put("a", 1);
    orderlane::ConsumerOptions options{.servers = proxy.server.address(), .group = "g"};
    options.logger = [](LogLevel, std::string_view) {};
    options.drain_timeout = 100ms;
    orderlane::Consumer consumer(options);
    const LittleMemory limit;
    const std::jthread stopper([&] {
        CHECK(proxy.messages->wait_for("retry", 1));
        consumer.stop();
    });
    consumer.run([](const orderlane::Message&) { throw LongStory(); });
}

TEST_CASE("without a thread that settles, a consumer ends and holds no message") {
    fake::Proxy proxy;
    proxy.messages->put("a", 1);
    proxy.messages->put("b", 1);
    orderlane::ConsumerOptions options{.servers = proxy.server.address(), .group = "g"};
    options.logger = [](LogLevel, std::string_view) {};
    options.drain_timeout = options.request_timeout = 2s;
    options.hooks.pulled = [](std::size_t) { is_alone = true; };  // called by the thread of pulls
    orderlane::Consumer consumer(options);
    CHECK_THROWS_WITH_AS(consumer.run([](const orderlane::Message&) {}),
                         doctest::Contains("a thread could not be started"), std::system_error);
    CHECK(proxy.messages->with("ok").size() + proxy.messages->with("defer").size() == 2);
}

TEST_CASE("a call that ended without memory closes its connection") {
    const fake::Listener listener;
    const auto server = begin_answer(listener);
    SUBCASE("of a puller") {
        orderlane::Puller puller({.servers = listener.address().text(),
                                  .group = "g",
                                  .request_timeout = 300ms});
        {
            const LittleMemory limit;
            CHECK_THROWS_AS(static_cast<void>(puller.pull(1, 0ms)), std::bad_alloc);
        }
        CHECK_THROWS_AS(static_cast<void>(puller.pull(1, 0ms)), orderlane::ConnectionLost);
    }
    SUBCASE("of a producer") {
        orderlane::Producer producer({.servers = listener.address().text(),
                                      .logger = [](LogLevel, std::string_view) {}});
        {
            const LittleMemory limit;
            CHECK_THROWS_AS(producer.send({.topic = "t", .body = "x"}), std::bad_alloc);
        }
        CHECK_THROWS_AS(producer.send({.topic = "t", .body = "x"}, 300ms),
                        orderlane::SendFailed);
    }
    CHECK(listener.something_comes(0));
}
