// The threads around the session, against a proxy in this process. Intended for sanitizers.
#include "fake_proxy.hpp"

#include <orderlane/orderlane.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <doctest/doctest.h>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <pthread.h>
#include <stdexcept>
#include <string_view>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

using namespace std::chrono_literals;
using orderlane::Consumer;
using orderlane::ConsumerOptions;
using orderlane::LogLevel;
using orderlane::Message;
using orderlane::Outcome;

namespace {

ConsumerOptions options_for(const fake::Proxy& proxy) {
    ConsumerOptions options{.servers = proxy.server.address(), .group = "g"};
    options.logger = [](LogLevel, std::string_view) {};
    return options;
}

/// Stops the consumer once `count` messages have this outcome.
std::jthread stop_after(Consumer& consumer, fake::Proxy& proxy, const char* outcome,
                        std::size_t count) {
    return std::jthread([&consumer, &proxy, outcome, count] {
        CHECK(proxy.messages->wait_for(outcome, count));
        consumer.stop();
    });
}

}  // namespace

TEST_CASE("keys are handled in parallel, each in order, and all messages are acked") {
    fake::Proxy proxy;
    constexpr int keys = 20, each = 25;
    for (int key = 0; key < keys; ++key) proxy.messages->put("k" + std::to_string(key), each);
    auto options = options_for(proxy);
    options.concurrency = 6;
    SUBCASE("one by one") {}
    SUBCASE("in runs") { options.max_run = 5; }
    std::atomic<int> started = 0, ended = 0;
    options.hooks.handle_start = [&](const Message&) { ++started; };
    options.hooks.handle_end = [&](const Message&, Outcome::Kind) {
        ++ended;
        throw std::runtime_error("a hook that fails is harmless");
    };
    Consumer consumer(options);
    std::mutex mutex;
    std::map<std::string, std::int64_t> last;
    std::map<std::string, int> at_work;
    const auto stopper = stop_after(consumer, proxy, "ok", keys * each);
    consumer.run([&](const Message& message) {
        {
            const std::lock_guard lock(mutex);
            CHECK(++at_work[*message.order_key] == 1);
            CHECK(last[*message.order_key] < message.offset);
            last[*message.order_key] = message.offset;
        }
        if (message.offset % 7 == 0) std::this_thread::sleep_for(1ms);
        const std::lock_guard lock(mutex);
        --at_work[*message.order_key];
    });
    CHECK(proxy.messages->with("ok").size() == keys * each);
    CHECK(started == keys * each);
    CHECK(ended == keys * each);
    CHECK(consumer.abandoned() == 0);
}

namespace {

struct Silent : std::exception {
    [[nodiscard]] const char* what() const noexcept override { return nullptr; }
};

/// A result that becomes an outcome, and throws at its own end.
struct Grudging {
    operator Outcome() const { return Outcome::ok(); }
    ~Grudging() noexcept(false) { throw std::domain_error("late"); }
};

}  // namespace

TEST_CASE("a thrown value is an outcome, and reaches operators") {
    fake::Proxy proxy;
    proxy.messages->put("a", 1);
    Consumer consumer(options_for(proxy));
    SUBCASE("an exception: retry") {
        const auto stopper = stop_after(consumer, proxy, "retry", 1);
        consumer.run([](const Message&) { throw std::domain_error("no"); });
        CHECK(proxy.messages->last_reason() == "std::domain_error: no");
    }
    SUBCASE("another type: retry") {
        const auto stopper = stop_after(consumer, proxy, "retry", 1);
        consumer.run([](const Message&) { throw 7; });
        CHECK(proxy.messages->last_reason() == "int");
    }
    SUBCASE("an exception without a text: retry") {
        const auto stopper = stop_after(consumer, proxy, "retry", 1);
        consumer.run([](const Message&) { throw Silent(); });
        CHECK(proxy.messages->last_reason() == "(anonymous namespace)::Silent: no text");
    }
    SUBCASE("a long text that is not UTF-8: retry") {
        const auto stopper = stop_after(consumer, proxy, "retry", 1);
        consumer.run([](const Message&) {
            throw std::domain_error("\xff" + std::string(300, 'x'));
        });
        CHECK(proxy.messages->last_reason() ==
              "std::domain_error: \xEF\xBF\xBD" + std::string(180, 'x'));
    }
    SUBCASE("the end of the result: retry") {
        const auto stopper = stop_after(consumer, proxy, "retry", 1);
        consumer.run([](const Message&) { return Grudging(); });
        CHECK(proxy.messages->last_reason() == "std::domain_error: late");
    }
    SUBCASE("an outcome") {
        const auto stopper = stop_after(consumer, proxy, "reject", 1);
        consumer.run([](const Message&) { throw Outcome::reject("bad"); });
        CHECK(proxy.messages->last_reason() == "bad");
    }
    SUBCASE("Stopped: released") {
        const auto stopper = stop_after(consumer, proxy, "defer", 1);
        consumer.run([](const Message&) { throw orderlane::Stopped(); });
    }
}

TEST_CASE("batches hold messages of one key, and are acked up to the handler's result") {
    fake::Proxy proxy;
    proxy.messages->put("a", 4);
    auto options = options_for(proxy);
    options.max_run = 4;
    Consumer consumer(options);
    const auto stopper = stop_after(consumer, proxy, "defer", 1);
    consumer.run_batches([](const orderlane::KeyBatch& batch) {
        REQUIRE(batch.size() == 4);
        CHECK_FALSE(batch.stop_token().stop_requested());
        batch.done(2);
        throw std::runtime_error("the third");
    });
    CHECK(proxy.messages->with("ok") == std::vector<std::int64_t>{1, 2});
    CHECK(proxy.messages->with("retry") == std::vector<std::int64_t>{3});
    CHECK(proxy.messages->with("defer") == std::vector<std::int64_t>{4});
}

TEST_CASE("a batch of which all is done, and that failed nevertheless") {
    fake::Proxy proxy;
    proxy.messages->put("a", 2);
    auto options = options_for(proxy);
    options.max_run = 2;
    std::string logged;
    options.logger = [&](LogLevel, std::string_view text) { logged = text; };
    Consumer consumer(options);
    SUBCASE("a result: the last message is not done") {
        const auto stopper = stop_after(consumer, proxy, "retry", 1);
        consumer.run_batches([](const orderlane::KeyBatch& batch) -> orderlane::BatchResult {
            return {batch.size(), Outcome::retry()};
        });
        CHECK(proxy.messages->with("ok") == std::vector<std::int64_t>{1});
        CHECK(proxy.messages->with("retry") == std::vector<std::int64_t>{2});
    }
    SUBCASE("an exception after the last one was marked: the log says that it has no effect") {
        const auto stopper = stop_after(consumer, proxy, "ok", 2);
        consumer.run_batches([](const orderlane::KeyBatch& batch) {
            batch.done(batch.size());
            throw std::runtime_error("late");
        });
        CHECK(logged == "handling t/q#1 at offset 2 (attempt 1) failed; all messages of its batch"
                        " are done: std::runtime_error: late");
    }
}

TEST_CASE("a handler that ends its thread holds no message, and another thread takes over") {
    fake::Proxy proxy;
    auto options = options_for(proxy);
    options.concurrency = 1;
    SUBCASE("one message: retry") {
        proxy.messages->put("a", 1);
        proxy.messages->put("b", 1);
        Consumer consumer(options);
        const auto stopper = stop_after(consumer, proxy, "ok", 1);
        consumer.run([](const Message& message) {
            if (message.order_key == "a") ::pthread_exit(nullptr);
        });
        CHECK(proxy.messages->with("retry").size() == 1);
        CHECK(proxy.messages->last_reason() == "the handler ended its thread");
        CHECK(consumer.abandoned() == 0);
    }
    SUBCASE("a batch: those that are marked are done") {
        proxy.messages->put("a", 3);
        options.max_run = 3;
        Consumer consumer(options);
        const auto stopper = stop_after(consumer, proxy, "defer", 1);
        consumer.run_batches([](const orderlane::KeyBatch& batch) {
            batch.done(1);
            ::pthread_exit(nullptr);
        });
        CHECK(proxy.messages->with("ok") == std::vector<std::int64_t>{1});
        CHECK(proxy.messages->with("retry") == std::vector<std::int64_t>{2});
        CHECK(proxy.messages->with("defer") == std::vector<std::int64_t>{3});
    }
}

TEST_CASE("an empty handler is refused before the start") {
    fake::Proxy proxy;
    proxy.messages->put("a", 1);
    Consumer consumer(options_for(proxy));
    const std::function<void(const Message&)> none;
    CHECK_THROWS_WITH_AS(consumer.run(none), "the handler is empty: expected a function",
                         std::invalid_argument);
    void (*pointer)(const orderlane::KeyBatch&) = nullptr;
    CHECK_THROWS_AS(consumer.run_batches(pointer), std::invalid_argument);
    const auto stopper = stop_after(consumer, proxy, "ok", 1);
    consumer.run(std::function([](const Message&) {}));  // it was not used
}

namespace {

/// Keeps the times of requests.
class Recorder : public fake::Messages {
public:
    void pull(fake::wire::PullResponse& response, const fake::wire::PullRequest& request) override {
        linger_ms = request.maxLingerTime;
        Messages::pull(response, request);
    }
    void extend(fake::wire::AckAnswer&, const fake::wire::ExtendRequest& request) override {
        extended_ms = request.ms;
    }
    std::atomic<std::int32_t> linger_ms = 0, extended_ms = 0;
};

}  // namespace

TEST_CASE("unlimited times of a puller are capped") {
    const auto recorder = std::make_shared<Recorder>();
    recorder->put("a", 1);
    const fake::Server server(
        std::make_shared<fake::wire::ConsumerServiceProcessor>(recorder));
    orderlane::Puller puller({.servers = server.address(), .group = "g"});
    constexpr auto longest = std::numeric_limits<std::int32_t>::max();
    const auto messages = puller.pull(1, std::chrono::milliseconds::max());
    REQUIRE(messages.size() == 1);
    CHECK(recorder->linger_ms == longest);
    CHECK(puller.extend(messages.front(), std::chrono::milliseconds::max()));
    CHECK(recorder->extended_ms == longest);
    CHECK(messages.front().time_left() > 1h);
}

TEST_CASE("the serial form: verdicts by scope, and the destructor drains") {
    fake::Proxy proxy;
    proxy.messages->put("a", 3);
    {
        Consumer consumer(options_for(proxy));
        if (auto first = consumer.next()) first->ok();
        if (auto second = consumer.next()) {
            second->settle(Outcome::reject());
            CHECK_THROWS_AS(second->ok(), std::logic_error);
        }
        const auto third = consumer.next();
        REQUIRE(third);
        CHECK((*third)->offset == 3);
    }
    CHECK(proxy.messages->with("ok") == std::vector<std::int64_t>{1});
    CHECK(proxy.messages->with("reject") == std::vector<std::int64_t>{2});
    CHECK(proxy.messages->with("retry") == std::vector<std::int64_t>{3});
    CHECK(proxy.messages->last_reason() == "its scope ended without a verdict");
}

TEST_CASE("the drain timeout asks handlers to end, and waits for them") {
    fake::Proxy proxy;
    proxy.messages->put("a", 1);
    auto options = options_for(proxy);
    options.drain_timeout = 50ms;
    Consumer consumer(options);
    std::jthread stopper;
    consumer.run([&](const Message& message) {
        stopper = std::jthread([&] { consumer.stop(); });
        while (!message.stop_token().stop_requested()) std::this_thread::sleep_for(1ms);
        CHECK_FALSE(message.lease_lost());
        message.throw_if_stopped();
    });
    CHECK(proxy.messages->with("defer") == std::vector<std::int64_t>{1});
    CHECK(consumer.abandoned() == 0);
}

TEST_CASE("unlimited times are capped") {
    fake::Proxy proxy;
    proxy.messages->put("a", 1);
    auto options = options_for(proxy);
    SUBCASE("the longest possible") {
        options.request_timeout = options.ack_linger = options.drain_timeout =
            std::chrono::milliseconds::max();
    }
    SUBCASE("a thousand years") {
        options.request_timeout = options.ack_linger = options.drain_timeout = 24h * 365'000;
    }
    Consumer consumer(options);
    std::jthread stopper;
    consumer.run([&](const Message& message) {
        stopper = std::jthread([&] { consumer.stop(); });
        for (int count = 0; count < 50; ++count) {
            message.throw_if_stopped();
            std::this_thread::sleep_for(1ms);
        }
    });
    CHECK(proxy.messages->with("ok") == std::vector<std::int64_t>{1});
}

TEST_CASE("a handler that ignores the stop is abandoned") {
    fake::Proxy proxy;
    proxy.messages->put("a", 1);
    auto options = options_for(proxy);
    options.drain_timeout = 10ms;
    Consumer consumer(options);
    const auto released = std::make_shared<std::atomic<bool>>(false);
    const auto ended = std::make_shared<std::atomic<bool>>(false);
    std::jthread stopper;
    consumer.run([&stopper, &consumer, released, ended](const Message&) {
        stopper = std::jthread([&] { consumer.stop(); });
        while (!*released) std::this_thread::sleep_for(1ms);
        *ended = true;
    });
    CHECK(consumer.abandoned() == 1);
    *released = true;
    while (consumer.abandoned() > 0) std::this_thread::sleep_for(1ms);
    CHECK(*ended);
    CHECK(proxy.messages->with("ok").empty());  // its verdict is not sent
}

TEST_CASE("a signal drains") {
    fake::Proxy proxy;
    proxy.messages->put("a", 3);
    Consumer consumer(options_for(proxy));
    const orderlane::StopOnSignals signals(consumer);
    CHECK_THROWS_AS(orderlane::StopOnSignals{consumer}, std::logic_error);
    consumer.run([](const Message&) { ::kill(::getpid(), SIGTERM); });
    CHECK(proxy.messages->with("ok").size() >= 1);
}

TEST_CASE("without a proxy a consumer retries until it is stopped") {
    ConsumerOptions options{.servers = "127.0.0.1:1", .group = "g"};
    options.logger = [](LogLevel, std::string_view) {};
    std::atomic<int> errors = 0;
    options.hooks.error = [&](const orderlane::Error& error) {
        CHECK(error.retriable());
        ++errors;
    };
    Consumer consumer(options);
    const std::jthread stopper([&] {
        while (errors < 2) std::this_thread::sleep_for(1ms);
        consumer.stop();
    });
    consumer.run([](const Message&) {});
    CHECK_THROWS_AS(consumer.run([](const Message&) {}), std::logic_error);
}

TEST_CASE("next() requires the previous verdict") {
    fake::Proxy proxy;
    proxy.messages->put("k", 2);
    Consumer consumer(options_for(proxy));
    {
        const auto first = consumer.next();
        REQUIRE(first);
        CHECK_THROWS_WITH_AS(
            static_cast<void>(consumer.next()),
            "t/q#1 at offset 1 (attempt 1) has no verdict: call its ok() or settle(), or end its"
            " scope, before asking for the next message",
            std::logic_error);
        std::jthread([&] { consumer.stop(); }).join();
    }
    CHECK_FALSE(consumer.next());
}

namespace {

/// The exit code of a child process that runs `work`; 1 for an exception.
int in_child(const std::function<bool()>& work) {
    const auto child = ::fork();
    if (child == 0) {
        try {
            std::_Exit(work() ? 0 : 2);
        } catch (const std::exception& error) {
            std::fputs(error.what(), stderr);
            std::_Exit(1);
        }
    }
    int status = -1;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace

TEST_CASE("a consumer that was not started can start in a child process") {
    fake::Proxy proxy;
    proxy.messages->put("k", 1);
    Consumer unused(options_for(proxy));
    CHECK(in_child([&] {
        unused.run([&](const Message&) { unused.stop(); });
        return true;
    }) == 0);
    CHECK(proxy.messages->wait_for("ok", 1));
}

TEST_CASE("a started consumer belongs to its process") {
    fake::Proxy proxy;
    proxy.messages->put("k", 1);
    Consumer started(options_for(proxy));
    auto delivery = started.next();
    REQUIRE(delivery);
    CHECK(in_child([&] {
        try {
            static_cast<void>(started.next());
        } catch (const std::logic_error& error) {
            return std::string_view(error.what()).starts_with("this consumer was started in proc");
        }
        return false;
    }) == 0);
    delivery->ok();
    CHECK(proxy.messages->wait_for("ok", 1));
}

namespace {

class Store : public orderlane::gen::producer::ProducerServiceNull {
public:
    void sendSync(orderlane::gen::producer::Result& result,
                  const orderlane::gen::producer::Message& message, const int64_t) override {
        const std::lock_guard lock(mutex);
        keys.push_back(message.key);
        const bool busy = keys.size() % 3 == 0;
        result.__set_code(busy ? 15 : 0);
        if (!busy) stored.push_back(message.body);
    }
    std::mutex mutex;
    std::vector<std::string> keys, stored;
};

}  // namespace

TEST_CASE("threads share a producer; messages refused temporarily are resent") {
    const auto store = std::make_shared<Store>();
    const fake::Server server(
        std::make_shared<orderlane::gen::producer::ProducerServiceProcessor>(store));
    orderlane::Producer producer({.servers = server.address(),
                                  .logger = [](LogLevel, std::string_view) {}});
    {
        std::vector<std::jthread> senders;
        for (int number = 0; number < 4; ++number) {
            senders.emplace_back([&producer, number] {
                for (int count = 0; count < 5; ++count) {
                    producer.send({.topic = "t",
                                   .body = std::to_string(count),
                                   .key = std::to_string(number)});
                }
            });
        }
    }
    CHECK(store->stored.size() == 20);
    CHECK(producer.send_batch(std::vector<orderlane::Outgoing>{}).empty());
}

TEST_CASE("a signal to a forked child ends the child alone") {
    fake::Proxy proxy;
    proxy.messages->put("a", 2);
    Consumer consumer(options_for(proxy));
    const auto former = std::signal(SIGTERM, SIG_DFL);  // the child's, instead of doctest's
    std::optional<orderlane::StopOnSignals> signals(std::in_place, consumer);
    int status = 0;
    consumer.run([&](const Message& message) {
        if (message.offset > 1) return consumer.stop();
        std::array<int, 2> runs{};
        CHECK(::pipe(runs.data()) == 0);
        const auto child = ::fork();
        if (child == 0) {
            if (::write(runs[1], "", 1) == 1) ::sleep(60);
            std::_Exit(0);
        }
        char byte = 0;
        CHECK(::read(runs[0], &byte, 1) == 1);
        ::kill(child, SIGTERM);
        ::waitpid(child, &status, 0);
        for (const int end : runs) ::close(end);
    });
    signals.reset();
    std::signal(SIGTERM, former);
    CHECK(WIFSIGNALED(status));
    CHECK(proxy.messages->with("ok").size() == 2);
}

TEST_CASE("a producer created before a fork sends in each process") {
    const auto store = std::make_shared<Store>();
    const fake::Server server(
        std::make_shared<orderlane::gen::producer::ProducerServiceProcessor>(store));
    orderlane::Producer producer({.servers = server.address(),
                                  .logger = [](LogLevel, std::string_view) {}});
    producer.send({.topic = "t", .body = "before", .key = "k"});
    for (int child = 0; child < 3; ++child) {
        CHECK(in_child([&] {
            return !producer.send({.topic = "t", .body = "child", .key = "k"}).empty();
        }) == 0);
    }
    producer.send({.topic = "t", .body = "after", .key = "k"});
    CHECK(store->stored.size() == 5);
}

TEST_CASE("a stop token drains as stop does, in all forms") {
    fake::Proxy proxy;
    proxy.messages->put("a", 3);
    Consumer consumer(options_for(proxy));
    std::atomic<bool> asked_to_end = false;
    std::stop_source stop;
    const auto finish_last = [&](const Message& message) {
        if (message.offset < 3) return;  // the first is 1
        stop.request_stop();
        asked_to_end = asked_to_end || message.stop_token().stop_requested();
    };
    SUBCASE("run") { consumer.run(stop.get_token(), finish_last); }
    SUBCASE("run_batches") {
        consumer.run_batches(stop.get_token(), [&](const orderlane::KeyBatch& batch) {
            for (const auto& message : batch) finish_last(message);
        });
    }
    SUBCASE("next") {
        while (auto delivery = consumer.next(stop.get_token())) {
            finish_last(**delivery);
            delivery->ok();
        }
        CHECK_FALSE(consumer.next(stop.get_token()));  // not a second stop, which would not wait
    }
    CHECK(proxy.messages->wait_for("ok", 3));
    CHECK_FALSE(asked_to_end);
    CHECK_EQ(consumer.abandoned(), 0);
}

TEST_CASE("a token whose stop was requested before ends the run at once") {
    fake::Proxy proxy;
    proxy.messages->put("a", 1);
    std::stop_source stop;
    stop.request_stop();
    Consumer consumer(options_for(proxy));
    std::atomic<int> handled = 0;
    consumer.run(stop.get_token(), [&](const Message&) { ++handled; });
    CHECK_EQ(handled, 0);
}
