#include "core.hpp"

#include "arguments.hpp"
#include "text.hpp"
#include "thread_end.hpp"
#include "version.hpp"

#include <algorithm>
#include <stdexcept>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace orderlane::detail {
namespace {

/// Time for handlers to end after they were asked to.
constexpr Nanos grace_ns = 1'000 * ms;

std::size_t checked_prefetch(const ConsumerOptions& options) {
    if (options.prefetch) {
        check_count("prefetch", *options.prefetch, 0);
        return static_cast<std::size_t>(*options.prefetch);
    }
    const int concurrency = options.concurrency;  // with runs: one in progress, room for the next
    return static_cast<std::size_t>(
        options.max_run == 1 ? concurrency : std::max(concurrency, 2 * options.max_run));
}

SessionOptions session_options(const ConsumerOptions& options) {
    check_reader(options.group, options.topics, options.client_id, options.token);
    check_count("concurrency", options.concurrency, 1);
    check_count("max_run", options.max_run, 1);
    check_length("ack_linger", options.ack_linger, 0);
    check_length("drain_timeout", options.drain_timeout, 0);
    return {
        .group = options.group,
        .topics = options.topics,
        .client_id = options.client_id.empty() ? default_client_id() : options.client_id,
        .version = client_version,
        .token = options.token,
        .concurrency = static_cast<std::size_t>(options.concurrency),
        .prefetch = checked_prefetch(options),
        .ack_linger_ns = nanos(options.ack_linger),
        .max_run = options.max_run,
        .request_prefix = random_hex(4) + "-",
    };
}

}  // namespace

std::string default_client_id() {
    char host[256] = "host";
    ::gethostname(host, sizeof host - 1);
    return std::string(host) + "@" + std::to_string(::getpid()) + "-" + random_hex(2);
}

Core::Core(ConsumerOptions options)
    : options_(std::move(options)),
      log_(options_.logger),
      session_(session_options(options_)),
      feeder_({mutex_, session_, options_.hooks, log_, [this] { turn(); }},
              Proxies(options_.servers, options_.tls, options_.request_timeout)),
      process_(::getpid()),
      forked_([this] { begin_anew(); }) {}

/// In a child process: a started consumer's messages and threads remain in the parent.
void Core::begin_anew() {
    make_anew(mutex_);
    make_anew(progress_);
    if (!started_) {
        const auto name = options_.client_id.empty() ? default_client_id() : options_.client_id;
        session_.rename(name, random_hex(4) + "-");
        return;
    }
    inherited_ = closed_ = true;
    feeder_.abandon();
    make_anew(workers_);
    make_anew(idle_);
}

void Core::check_process() const {
    if (!inherited_) return;
    throw std::logic_error("this consumer was started in process " + std::to_string(process_) +
                           ": create one in this process, or start it after the fork");
}

// ---- the parallel form --------------------------------------------------------------------------

void Core::run(BatchHandler handler, std::size_t max) {
    {
        Lock lock(mutex_);
        start();
        handler_ = std::move(handler);
        max_batch_ = max;
        turn();
        progress_.wait(lock, [this] { return session_.stopping(); });
    }
    close();
    const Lock lock(mutex_);
    if (feeder_.failure()) std::rethrow_exception(feeder_.failure());
}

void Core::start() {
    check_process();
    if (started_) throw std::logic_error("a consumer is used once: create a new one");
    started_ = true;
    feeder_.start();
}

void Core::spawn_worker() {
    workers_.emplace_back([core = shared_from_this()] { core->work(); });
    ++working_;
}

ORDERLANE_CATCHES_THREAD_END void Core::work() {
    try {
        work_forever();
        const Lock lock(mutex_);
        --working_;
        progress_.notify_all();
        return;
    } catch (const ThreadEnd&) {  // by a handler: another thread takes over
        const Lock lock(mutex_);
        forget_worker();
        turn();
        throw;
    } catch (const std::exception& error) {  // a bug, or no memory: its messages wait
        log_(LogLevel::error, std::string("a worker ended: ") + error.what());
    } catch (...) {
        log_(LogLevel::error, "a worker ended");
    }
    const Lock lock(mutex_);
    forget_worker();
    progress_.notify_all();
}

/// Makes room for another worker when this one ends before the stop. The caller holds the mutex.
void Core::forget_worker() {
    --working_;
    const auto is_own = [](const auto& worker) {
        return worker.get_id() == std::this_thread::get_id();
    };
    const auto own = std::find_if(workers_.begin(), workers_.end(), is_own);
    if (own == workers_.end()) return;  // the consumer is closing
    own->detach();
    workers_.erase(own);
}

void Core::work_forever() {
    Lock lock(mutex_);
    waking_ = false;
    for (;;) {
        const auto batch = take(lock, max_batch_);
        if (batch.empty()) return;
        handle(batch, lock);
    }
}

ORDERLANE_CATCHES_THREAD_END void Core::handle(std::span<const Message> batch, Lock& lock) {
    lock.unlock();
    log_.tell(options_.hooks.handle_start, batch.front());
    BatchResult result;
    try {
        call_handler(batch, result);
    } catch (const ThreadEnd&) {
        log_(LogLevel::error, "the handler of " + batch.front().describe() + " ended its thread");
        if (result.done < batch.size()) {
            result.outcome = Outcome::retry("the handler ended its thread");
        }
        end(batch, result, lock);
        throw;
    } catch (...) {  // no memory to describe the handler's exception
        if (result.done < batch.size()) result.outcome = Outcome::retry();
    }
    end(batch, result, lock);
}

void Core::end(std::span<const Message> batch, BatchResult result, Lock& lock) {
    result.done = std::min(result.done, batch.size());
    // Before the session lets the key's next message start in another thread.
    tell_ends(batch, result);
    lock.lock();
    session_.settle_batch(batch, result.done, result.outcome, now_ns());
    turn();
}

void Core::call_handler(std::span<const Message> batch, BatchResult& result) {
    std::vector<std::shared_ptr<void>> spans;
    if (options_.hooks.span) {
        for (const auto& message : batch) {
            log_.guard([&] { spans.push_back(options_.hooks.span(message)); });
        }
    }
    handler_(batch, result);
}

/// Reports start and end of each message of a batch in turn, but not of those behind a failure.
void Core::tell_ends(std::span<const Message> batch, const BatchResult& result) const {
    const auto ended = std::min(result.done + 1, batch.size());
    for (std::size_t index = 0; index < ended; ++index) {
        if (index > 0) log_.tell(options_.hooks.handle_start, batch[index]);
        const auto kind = index < result.done        ? Outcome::Kind::ok
                          : result.outcome.is_ok() ? Outcome::Kind::defer
                                                     : result.outcome.kind();
        log_.tell(options_.hooks.handle_end, batch[index], kind);
    }
}

// ---- the serial form ----------------------------------------------------------------------------

std::optional<Message> Core::next() {
    Lock lock(mutex_);
    if (!started_) start();
    check_process();
    check_settled();
    const auto taken = take(lock, 1);
    if (!taken.empty()) {
        const auto& message = taken.front();
        delivered_.emplace(message.lease.get(), std::pair(std::this_thread::get_id(), message));
        lock.unlock();
        log_.tell(options_.hooks.handle_start, taken.front());
        return taken.front();
    }
    if (feeder_.failure()) std::rethrow_exception(feeder_.failure());
    return {};
}

/// The caller holds the mutex.
void Core::check_settled() const {
    for (const auto& [lease, taken] : delivered_) {
        if (taken.first != std::this_thread::get_id()) continue;
        throw std::logic_error(taken.second.describe() +
                               " has no verdict: call its ok() or settle(), or end its scope,"
                               " before asking for the next message");
    }
}

void Core::settle(const Message& message, const Outcome& outcome) {
    check_process();
    log_.tell(options_.hooks.handle_end, message, outcome.kind());
    const Lock lock(mutex_);
    delivered_.erase(message.lease.get());
    session_.settle(message, outcome, now_ns());
    turn();
}

// ---- waiting and waking -------------------------------------------------------------------------

std::vector<Message> Core::take(Lock& lock, std::size_t max) {
    while (!session_.stopping()) {
        auto batch = session_.take(now_ns(), max);
        if (batch.empty()) {
            wait_for_message(lock);
            continue;
        }
        if (batch.size() > 1) {
            std::stop_source stop;
            for (const auto& message : batch) message.lease->batch_stop = stop;
        }
        feeder_.turn();
        wake_one();
        return batch;
    }
    return {};
}

void Core::wait_for_message(Lock& lock) {
    Waiter waiter;
    idle_.push_back(&waiter);
    waiter.woken.wait(lock, [&] { return waiter.is_woken; });
    waking_ = false;
}

void Core::wake_one() {
    if (waking_ || session_.takeable() == 0) return;
    if (!idle_.empty()) {
        idle_.back()->is_woken = true;
        idle_.back()->woken.notify_one();
        idle_.pop_back();
        waking_ = true;
    } else if (handler_ && workers_.size() < session_.options().concurrency) {
        try {
            spawn_worker();
            waking_ = true;
        } catch (const std::system_error& error) {
            log_(LogLevel::error, std::string("a handler thread could not be started: ") +
                                      error.what());
        }
    }
}

/// Wakes all that wait for a change. The caller holds the mutex.
void Core::turn() {
    if (feeder_.failure() && !session_.stopping()) session_.stop(now_ns());
    feeder_.turn();
    if (!session_.stopping()) return wake_one();
    for (auto* waiter : std::exchange(idle_, {})) {
        waiter->is_woken = true;
        waiter->woken.notify_one();
    }
    progress_.notify_all();
}

// ---- the end ------------------------------------------------------------------------------------

void Core::stop() {
    bool is_second = false;
    if (inherited_) return;
    {
        const Lock lock(mutex_);
        hard_ = is_second = std::exchange(stop_called_, true);
        session_.stop(now_ns());
        turn();
    }
    if (is_second) stop_handlers();
}

void Core::request_stop() {
    if (inherited_) return;
    const Lock lock(mutex_);
    if (std::exchange(stop_called_, true)) return;
    session_.stop(now_ns());
    turn();
}

void Core::close() {
    {
        const Lock lock(mutex_);
        if (closed_ || !started_) return;
        closed_ = true;
    }
    drain();
    feeder_.close();
    join_workers();
}

/// Waits for handlers, releases the rest, and sends the verdicts.
void Core::drain() {
    Lock lock(mutex_);
    session_.stop(now_ns());
    turn();
    const auto drained = [this] { return session_.drained() && working_ == 0; };
    if (!reached(lock, drained, nanos(options_.drain_timeout))) {
        lock.unlock();
        stop_handlers();
        lock.lock();
        hard_ = false;
        if (!reached(lock, drained, grace_ns)) {
            hard_ = false;
            reached(lock, [this] { return session_.flushed(); },
                    nanos(options_.request_timeout));
        }
    }
}

void Core::stop_handlers() {
    std::vector<Message> open;
    {
        const Lock lock(mutex_);
        open = session_.open_messages();
    }
    for (const auto& message : open) message.lease->request_stop();
}

template <class Condition>
bool Core::reached(Lock& lock, Condition condition, Nanos limit_ns) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::nanoseconds(limit_ns);
    progress_.wait_until(lock, limit, [&] { return hard_ || condition(); });
    return condition();
}

void Core::join_workers() {
    Lock lock(mutex_);
    const auto left = working_;
    auto workers = std::exchange(workers_, {});
    lock.unlock();
    // Running workers are detached as well: each keeps its own data alive.
    for (auto& worker : workers) left > 0 ? worker.detach() : worker.join();
    if (left > 0) {
        log_(LogLevel::warning, std::to_string(left) + " handlers continue after the drain");
    }
}

std::size_t Core::abandoned() const {
    const Lock lock(mutex_);
    return closed_ ? working_ : 0;
}

std::string Core::status() const {
    const Lock lock(mutex_);
    return "<Consumer " + session_.status() + ">";
}

}  // namespace orderlane::detail
