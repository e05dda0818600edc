// The shell of a consumer: passes the messages of a `Session` to handlers, and drains at the end.
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

/// Handles messages; the result, which holds as well if the thread ends, is how many are ok and the
/// outcome of the next one.
using BatchHandler = std::function<void(std::span<const Message>, BatchResult&)>;

/// Shared by the consumer and its workers: an abandoned worker keeps it alive.
class Core : public std::enable_shared_from_this<Core> {
public:
    /// Throws std::invalid_argument for invalid options.
    explicit Core(ConsumerOptions options);

    /// Handles messages, `max` of a run at a time, until `stop`; then drains.
    void run(BatchHandler handler, std::size_t max);
    /// Waits for the next message; nothing at the end. Starts the consumer.
    [[nodiscard]] std::optional<Message> next();
    /// Ends a message of `next`.
    void settle(const Message& message, const Outcome& outcome);
    void stop();
    /// As the first `stop`; does nothing after it.
    void request_stop();
    /// Drains after `next`, as `run` does; does nothing the second time.
    void close();

    /// Throws std::logic_error in a child of the process that started the consumer.
    void check_process() const;

    [[nodiscard]] const Log& log() const noexcept { return log_; }
    [[nodiscard]] std::size_t abandoned() const;
    [[nodiscard]] std::string status() const;

private:
    using Lock = std::unique_lock<std::mutex>;
    /// A thread waiting for a message.
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
    void work();
    void work_forever();
    void forget_worker();
    [[nodiscard]] std::vector<Message> take(Lock& lock, std::size_t max);
    void wait_for_message(Lock& lock);
    void handle(std::span<const Message> batch, Lock& lock);
    void call_handler(std::span<const Message> batch, BatchResult& result);
    void end(std::span<const Message> batch, BatchResult result, Lock& lock);
    void tell_ends(std::span<const Message> batch, const BatchResult& result) const;
    void drain();
    void stop_handlers();
    template <class Condition>
    bool reached(Lock& lock, Condition condition, Nanos limit_ns);
    void join_workers();

    const ConsumerOptions options_;
    const Log log_;
    mutable std::mutex mutex_;  // guards the members below
    Session session_;
    Feeder feeder_;
    BatchHandler handler_;
    std::size_t max_batch_ = 1;
    bool started_ = false;
    bool closed_ = false;
    bool stop_called_ = false;
    bool hard_ = false;
    /// One thread at a time is woken or started, and wakes the next if there is more work. So fast
    /// handlers keep few threads busy, and slow ones use all that are allowed.
    bool waking_ = false;
    std::vector<Waiter*> idle_;  // the last one is woken first: warm caches
    std::condition_variable progress_;
    std::vector<std::thread> workers_;
    std::size_t working_ = 0;  // workers that have not ended
    /// Messages of `next` without a verdict, with the threads that took them.
    std::map<const LeaseState*, std::pair<std::thread::id, Message>> delivered_;
    const ::pid_t process_;
    bool inherited_ = false;  // started in another process
    ForkHandler forked_;
};

}  // namespace orderlane::detail
