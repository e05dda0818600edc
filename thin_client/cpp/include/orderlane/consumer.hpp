// The consumer: passes the messages of a group to handlers, in order by key.
#pragma once

#if __cplusplus < 202002L
#error "orderlane needs C++20: compile with -std=c++20 or newer"
#endif

#include <orderlane/options.hpp>

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <stop_token>
#include <type_traits>
#include <utility>

namespace orderlane {

namespace detail {
class Core;

/// Whether handlers of this type may be empty.
template <class Handler>
inline constexpr bool may_be_empty = std::is_pointer_v<Handler>;
template <class Signature>
inline constexpr bool may_be_empty<std::function<Signature>> = true;

/// Throws std::invalid_argument for an empty handler, which would fail for every message.
template <class Handler>
void check_handler([[maybe_unused]] const Handler& handler) {
    if constexpr (may_be_empty<Handler>) {
        if (!handler) throw std::invalid_argument("the handler is empty: expected a function");
    }
}
}  // namespace detail

/// Consecutive messages of one key, first to last. Valid while the handler runs.
class KeyBatch {
public:
    KeyBatch(std::span<const Message> messages, std::stop_token stop)
        : messages_(messages), stop_(std::move(stop)) {}

    [[nodiscard]] auto begin() const noexcept { return messages_.begin(); }
    [[nodiscard]] auto end() const noexcept { return messages_.end(); }
    [[nodiscard]] std::size_t size() const noexcept { return messages_.size(); }
    [[nodiscard]] const Message& operator[](std::size_t index) const { return messages_[index]; }
    [[nodiscard]] const Message& front() const { return messages_.front(); }
    /// A stop is requested when a lease of the batch is lost or the drain times out.
    [[nodiscard]] std::stop_token stop_token() const noexcept { return stop_; }
    /// Marks the first `count` messages as handled, whatever happens to the rest: a later exception
    /// is the outcome of the next one.
    void done(std::size_t count) const noexcept { done_ = count; }
    [[nodiscard]] std::size_t done() const noexcept { return done_; }

private:
    std::span<const Message> messages_;
    std::stop_token stop_;
    mutable std::size_t done_ = 0;
};

/// Result of a batch handler: the first `done` messages are ok, `outcome` applies to the next one,
/// and those behind it are released. If the outcome is ok, the rest is released too. If another one
/// comes with all messages done, it applies to the last of them.
struct BatchResult {
    std::size_t done = 0;
    Outcome outcome = Outcome::ok();
};

/// A message of the serial form. Without a verdict it is retried at the end of its scope.
class Delivery {
public:
    Delivery(std::shared_ptr<detail::Core> core, Message message);
    Delivery(Delivery&&) noexcept = default;
    Delivery& operator=(Delivery&&) noexcept;
    ~Delivery();

    [[nodiscard]] const Message& operator*() const noexcept { return message_; }
    [[nodiscard]] const Message* operator->() const noexcept { return &message_; }
    /// Sets the outcome. Throws std::logic_error the second time.
    void settle(const Outcome& outcome);
    void ok() { settle(Outcome::ok()); }

private:
    std::shared_ptr<detail::Core> core_;
    Message message_;
};

/// Pulls the messages of a consumer group and acks the handled ones. Used once.
///
///     orderlane::Consumer consumer{{.servers = "proxy:9713", .group = "billing"}};
///     orderlane::StopOnSignals signals{consumer};  // SIGTERM and SIGINT drain
///     consumer.run([](const orderlane::Message& m) { charge(m.body); });
///
/// Two messages of one order key are never handled at the same time. The destructor drains.
class Consumer {
public:
    /// Throws std::invalid_argument with an explanation for invalid options.
    explicit Consumer(ConsumerOptions options);
    Consumer(const Consumer&) = delete;
    Consumer& operator=(const Consumer&) = delete;
    ~Consumer();

    /// Handles messages in up to `concurrency` threads until `stop`, then drains and returns.
    ///
    /// The handler takes `const Message&` and returns an Outcome, or nothing for ok; an exception
    /// means retry, and so does the end of its thread, as by `pthread_exit`. After the drain timeout
    /// a stop is requested on its stop token. A handler that does not end is abandoned: `run`
    /// returns, the thread continues with its own copy of the handler, and the message waits until
    /// its lease expires. Throws Refused, or another error that no retry can help, after draining,
    /// and std::invalid_argument for an empty handler.
    template <class Handler>
    void run(Handler handler) {
        using Result = std::invoke_result_t<Handler&, const Message&>;
        static_assert(std::is_void_v<Result> || std::is_convertible_v<Result, Outcome>,
                      "the handler must return an Outcome or nothing: with a future or a coroutine,"
                      " the message would be acked before its work has run");
        detail::check_handler(handler);
        run_messages([handle = std::move(handler)](const Message& message) mutable -> Outcome {
            if constexpr (std::is_void_v<Result>) {
                handle(message);
                return Outcome::ok();
            } else {
                return handle(message);
            }
        });
    }

    /// As `run`, until a stop is requested, as `stop` does; for the function of a std::jthread:
    ///
    ///     std::jthread worker([&](std::stop_token stop) { consumer.run(stop, handle); });
    ///
    /// Messages have stop tokens of their own: handlers may finish during the drain.
    template <class Handler>
    void run(std::stop_token stop, Handler handler) {
        const std::stop_callback stopping(std::move(stop), [this] { request_stop(); });
        run(std::move(handler));
    }

    /// As `run`, with up to `max_batch` messages of one key at a time (0: all that arrived
    /// together; see `max_run`). The handler takes `const KeyBatch&` and returns a BatchResult, or
    /// nothing if all are ok.
    template <class Handler>
    void run_batches(Handler handler, std::size_t max_batch = 0) {
        using Result = std::invoke_result_t<Handler&, const KeyBatch&>;
        static_assert(std::is_void_v<Result> || std::is_convertible_v<Result, BatchResult>,
                      "the handler must return a BatchResult or nothing: with a future or a"
                      " coroutine, the messages would be acked before their work has run");
        detail::check_handler(handler);
        run_key_batches(
            [handle = std::move(handler)](const KeyBatch& batch) mutable -> BatchResult {
                if constexpr (std::is_void_v<Result>) {
                    handle(batch);
                    return {batch.size()};
                } else {
                    return handle(batch);
                }
            },
            max_batch);
    }

    /// As `run_batches`, until a stop is requested.
    template <class Handler>
    void run_batches(std::stop_token stop, Handler handler, std::size_t max_batch = 0) {
        const std::stop_callback stopping(std::move(stop), [this] { request_stop(); });
        run_batches(std::move(handler), max_batch);
    }

    /// The serial form: waits for the next message; nothing after `stop`.
    ///
    ///     while (auto delivery = consumer.next()) {
    ///         charge((*delivery)->body);
    ///         delivery->ok();
    ///     }
    ///
    /// Throws std::logic_error if this thread still has a message without a verdict, which would
    /// block its key for ever. Otherwise throws as `run`.
    [[nodiscard]] std::optional<Delivery> next();
    /// As `next`; nothing after a stop was requested, which stops the consumer.
    [[nodiscard]] std::optional<Delivery> next(std::stop_token stop) {
        const std::stop_callback stopping(std::move(stop), [this] { request_stop(); });
        return next();
    }

    /// Stops pulling; handlers may continue for `drain_timeout`. A second call asks them to end at
    /// once. Safe to call from any thread, but not from a signal handler.
    void stop();

    /// Number of handlers that `run` has abandoned.
    [[nodiscard]] std::size_t abandoned() const;

    /// A readable status line.
    [[nodiscard]] std::string status() const;

private:
    void request_stop();
    void run_messages(std::function<Outcome(const Message&)> handler);
    void run_key_batches(std::function<BatchResult(const KeyBatch&)> handler,
                         std::size_t max_batch);

    std::shared_ptr<detail::Core> core_;
};

}  // namespace orderlane
