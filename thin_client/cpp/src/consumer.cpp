#include <orderlane/consumer.hpp>

#include "core.hpp"
#include "lease_state.hpp"
#include "log.hpp"
#include "thread_end.hpp"

#include <algorithm>
#include <limits>
#include <stdexcept>

namespace orderlane {
namespace {

/// The outcome of an exception from a handler. Call it while the exception is being handled.
Outcome outcome_of_exception(const detail::Log& log, const Message& message,
                             const char* effect = "the message will be retried") {
    try {
        throw;
    } catch (const Outcome& outcome) {
        return outcome;
    } catch (const Stopped&) {
        return Outcome::defer();
    } catch (...) {
        auto reason = detail::describe(std::current_exception());
        log(LogLevel::error,
            "handling " + message.describe() + " failed; " + effect + ": " + reason);
        return Outcome::retry(std::move(reason));
    }
}

ORDERLANE_CATCHES_THREAD_END void handle_one(const std::function<Outcome(const Message&)>& handle,
                                             const detail::Log& log, const Message& message,
                                             BatchResult& result) {
    try {
        result.outcome = handle(message);
    } catch (const detail::ThreadEnd&) {
        throw;
    } catch (...) {
        result.outcome = outcome_of_exception(log, message);
    }
    result.done = result.outcome.is_ok() ? 1 : 0;
}

ORDERLANE_CATCHES_THREAD_END void handle_batch(
    const std::function<BatchResult(const KeyBatch&)>& handle, const detail::Log& log,
    std::span<const Message> messages, BatchResult& result) {
    const auto& lease = *messages.front().lease;
    const auto& stop = lease.batch_stop ? *lease.batch_stop : lease.stop;
    const KeyBatch batch(messages, stop.get_token());
    const auto last = messages.size() - 1;
    try {
        result = handle(batch);
        // Contradictory if all are done: a duplicate is better than a loss.
        if (!result.outcome.is_ok()) result.done = std::min(result.done, last);
    } catch (const detail::ThreadEnd&) {
        result.done = batch.done();
        throw;
    } catch (...) {
        result.done = batch.done();
        if (batch.done() > last) {
            outcome_of_exception(log, messages[last], "all messages of its batch are done");
            result.outcome = Outcome::ok();
        } else {
            result.outcome = outcome_of_exception(log, messages[batch.done()]);
        }
    }
}

}  // namespace

Consumer::Consumer(ConsumerOptions options)
    : core_(std::make_shared<detail::Core>(std::move(options))) {}

Consumer::~Consumer() {
    try {
        core_->close();
    } catch (const std::exception&) {  // no memory: it cannot be reported
    }
}

void Consumer::run_messages(std::function<Outcome(const Message&)> handler) {
    core_->run(
        [handle = std::move(handler), log = core_->log()](auto batch, BatchResult& result) {
            handle_one(handle, log, batch.front(), result);
        },
        1);
}

void Consumer::run_key_batches(std::function<BatchResult(const KeyBatch&)> handler,
                               std::size_t max_batch) {
    core_->run(
        [handle = std::move(handler), log = core_->log()](auto messages, BatchResult& result) {
            handle_batch(handle, log, messages, result);
        },
        max_batch == 0 ? std::numeric_limits<std::size_t>::max() : max_batch);
}

std::optional<Delivery> Consumer::next() {
    auto message = core_->next();
    if (!message) return {};
    return std::optional<Delivery>(std::in_place, core_, std::move(*message));
}

void Consumer::stop() { core_->stop(); }

void Consumer::request_stop() { core_->request_stop(); }

std::size_t Consumer::abandoned() const { return core_->abandoned(); }

std::string Consumer::status() const { return core_->status(); }

Delivery::Delivery(std::shared_ptr<detail::Core> core, Message message)
    : core_(std::move(core)), message_(std::move(message)) {}

Delivery& Delivery::operator=(Delivery&& other) noexcept {
    std::swap(core_, other.core_);
    std::swap(message_, other.message_);
    return *this;
}

Delivery::~Delivery() {
    if (!core_) return;
    try {
        core_->log()(LogLevel::warning,
                     message_.describe() + " had no verdict at the end of its scope; it will be"
                                           " retried");
        settle(Outcome::retry("its scope ended without a verdict"));
    } catch (const std::exception&) {  // no memory: the lease expires
    }
}

void Delivery::settle(const Outcome& outcome) {
    if (!core_) throw std::logic_error(message_.describe() + " already has a verdict");
    const auto core = std::exchange(core_, nullptr);
    core->settle(message_, outcome);
}

}  // namespace orderlane
