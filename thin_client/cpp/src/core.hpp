// The shell of a consumer: hands the messages of a `Session` to handlers, and drains at the end.
#pragma once

#include <orderlane/consumer.hpp>

#include "feeder.hpp"
#include "forks.hpp"
#include "lease_state.hpp"
#include "log.hpp"
#include "session.hpp"

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <sys/types.h>
#include <thread>
#include <utility>
#include <vector>

namespace orderlane::detail {

/// What a handler is given, and what it makes of it: so many are ok, then the outcome.
using BatchHandler = std::function<BatchResult(std::span<const Message>)>;

/// Shared by the consumer and its workers: one that is left behind at the end keeps it alive.
class Core : public std::enable_shared_from_this<Core> {
public:
    /// Throws std::invalid_argument for options that make no sense.
    explicit Core(ConsumerOptions options);

    /// Handles messages, `max` of a run at a time, until `stop`; then drains.
    void run(BatchHandler handler, std::size_t max);
    /// The next message, waiting for one; nothing at the end. Starts the consumer.
    [[nodiscard]] std::optional<Message> next();
    /// A message of `next` has ended.
    void settle(const Message& message, const Outcome& outcome);
    void stop();
    /// Ends what `next` began, as `run` does; nothing if that was done.
    void close();

    /// Throws std::logic_error in a child of the process that started it.
    void check_process() const;

    [[nodiscard]] const Log& log() const noexcept { return log_; }
    [[nodiscard]] std::size_t abandoned() const;
    [[nodiscard]] std::string status() const;

private:
    using Lock = std::unique_lock<std::mutex>;
    /// A thread that waits for a message.
    struct Waiter {
        std::condition_variable woken;
        bool is_woken = false;
    };

    void start();
    void begin_anew();
    void check_settled() const;
    void turn();
    void wake_one();
    void spawn_worker();
    void work() noexcept;
    void work_forever();
    [[nodiscard]] std::vector<Message> take(Lock& lock, std::size_t max);
    void wait_for_message(Lock& lock);
    void handle(std::span<const Message> batch, Lock& lock);
    [[nodiscard]] BatchResult call_handler(std::span<const Message> batch);
    void tell_ends(std::span<const Message> batch, const BatchResult& result) const;
    void drain();
    void stop_handlers();
    template <class Condition>
    bool reached(Lock& lock, Condition condition, Nanos limit_ns);
    void join_workers();

    const ConsumerOptions options_;
    const Log log_;
    mutable std::mutex mutex_;  // guards all below
    Session session_;
    Feeder feeder_;
    BatchHandler handler_;
    std::size_t max_batch_ = 1;
    bool started_ = false;
    bool closed_ = false;
    bool stop_called_ = false;
    bool hard_ = false;
    /// One at a time is woken or started; at work, it wakes the next if there is more to do. So
    /// quick handlers keep few threads busy, and slow ones get all that they may have.
    bool waking_ = false;
    std::vector<Waiter*> idle_;  // the last one is woken first: its caches are warm
    std::condition_variable progress_;
    std::vector<std::thread> workers_;
    std::size_t working_ = 0;  // workers that have not ended
    /// Messages of `next` without a verdict, with the threads that took them.
    std::map<const LeaseState*, std::pair<std::thread::id, Message>> delivered_;
    const ::pid_t process_;
    bool inherited_ = false;  // another process started it
    ForkHandler forked_;
};

}  // namespace orderlane::detail
