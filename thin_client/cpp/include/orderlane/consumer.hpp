// The consumer: hands the messages of a group to handlers, in order by key.
#pragma once

#include <orderlane/options.hpp>

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <type_traits>
#include <utility>

namespace orderlane {

namespace detail {
class Core;
}

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
    /// Stop is requested when a lease of the batch is lost, or when the time to drain is up.
    [[nodiscard]] std::stop_token stop_token() const noexcept { return stop_; }
    /// So many messages are handled, whatever becomes of the rest: an exception afterwards is the
    /// outcome of the next one.
    void done(std::size_t count) const noexcept { done_ = count; }
    [[nodiscard]] std::size_t done() const noexcept { return done_; }

private:
    std::span<const Message> messages_;
    std::stop_token stop_;
    mutable std::size_t done_ = 0;
};

/// What a handler of batches returns: `done` messages are ok, the next one ended with `outcome`,
/// and those behind it are given back. With an outcome of ok the rest is given back, too.
struct BatchResult {
    std::size_t done = 0;
    Outcome outcome = Outcome::ok();
};

/// A message of the serial form. Without a verdict at the end of its scope it is retried.
class Delivery {
public:
    Delivery(std::shared_ptr<detail::Core> core, Message message);
    Delivery(Delivery&&) noexcept = default;
    Delivery& operator=(Delivery&&) noexcept;
    ~Delivery();

    [[nodiscard]] const Message& operator*() const noexcept { return message_; }
    [[nodiscard]] const Message* operator->() const noexcept { return &message_; }
    /// Ends the delivery. Throws std::logic_error the second time.
    void settle(const Outcome& outcome);
    void ok() { settle(Outcome::ok()); }

private:
    std::shared_ptr<detail::Core> core_;
    Message message_;
};

/// Pulls the messages of a consumer group and acks what was handled. Used once.
///
///     orderlane::Consumer consumer{{.servers = "proxy:9713", .group = "billing"}};
///     orderlane::StopOnSignals signals{consumer};  // SIGTERM and SIGINT drain
///     consumer.run([](const orderlane::Message& m) { charge(m.body); });
///
/// Never are two messages of one order key handled at a time. The destructor drains.
class Consumer {
public:
    /// Throws std::invalid_argument, in a sentence, for options that make no sense.
    explicit Consumer(ConsumerOptions options);
    Consumer(const Consumer&) = delete;
    Consumer& operator=(const Consumer&) = delete;
    ~Consumer();

    /// Handles messages in up to `concurrency` threads until `stop`, then drains and returns.
    ///
    /// The handler takes `const Message&` and returns an Outcome or nothing, which means ok; an
    /// exception means retry. After the drain time-out its stop token asks it to end, and what
    /// does not end is left alone: `run` returns, the thread goes on with a handler of its own,
    /// and its message waits until its lease ends. Throws Refused and others that no retry can
    /// help, after draining.
    template <class Handler>
    void run(Handler handler) {
        using Result = std::invoke_result_t<Handler&, const Message&>;
        static_assert(std::is_void_v<Result> || std::is_convertible_v<Result, Outcome>,
                      "the handler returns neither an Outcome nor nothing: a future or a coroutine"
                      " that it returned would be acked before its work has run");
        run_messages([handle = std::move(handler)](const Message& message) mutable -> Outcome {
            if constexpr (std::is_void_v<Result>) {
                handle(message);
                return Outcome::ok();
            } else {
                return handle(message);
            }
        });
    }

    /// As `run`, with up to `max_batch` messages of one key at a time (0: as many as came
    /// together; see `max_run`). The handler takes `const KeyBatch&` and returns a BatchResult, or
    /// nothing, which means that all are ok.
    template <class Handler>
    void run_batches(Handler handler, std::size_t max_batch = 0) {
        using Result = std::invoke_result_t<Handler&, const KeyBatch&>;
        static_assert(std::is_void_v<Result> || std::is_convertible_v<Result, BatchResult>,
                      "the handler returns neither a BatchResult nor nothing: a future or a"
                      " coroutine that it returned would be acked before its work has run");
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

    /// The serial form: the next message, waiting for one; nothing after `stop`.
    ///
    ///     while (auto delivery = consumer.next()) {
    ///         charge((*delivery)->body);
    ///         delivery->ok();
    ///     }
    ///
    /// Throws std::logic_error if this thread still has one without a verdict: nothing else of its
    /// key would ever come. Throws as `run`.
    [[nodiscard]] std::optional<Delivery> next();

    /// Pulls no more; what is handled goes on, for `drain_timeout` at most. A second call asks it
    /// to end at once. May be called from any thread, not from a signal handler.
    void stop();

    /// Handlers that `run` has left behind.
    [[nodiscard]] std::size_t abandoned() const;

    /// A line on how it stands, for people.
    [[nodiscard]] std::string status() const;

private:
    void run_messages(std::function<Outcome(const Message&)> handler);
    void run_key_batches(std::function<BatchResult(const KeyBatch&)> handler,
                         std::size_t max_batch);

    std::shared_ptr<detail::Core> core_;
};

}  // namespace orderlane
