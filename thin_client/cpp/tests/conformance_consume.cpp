#include "conformance_lines.hpp"

#include <atomic>
#include <condition_variable>
#include <functional>
#include <random>
#include <set>
#include <stdexcept>
#include <thread>
#include <tuple>
#include <vector>

namespace conformance {
namespace {

using namespace std::chrono_literals;
using orderlane::Message;
using orderlane::Outcome;
using std::chrono::milliseconds;

/// A message body's instructions for its handler.
struct Task {
    milliseconds work{0};
    milliseconds block{0};
    bool until_lost = false;
    bool stubborn = false;
    std::string act = "ok";
    std::optional<milliseconds> after;
    std::string reason;
};

Task read_task(const Message& message, const Json& options) {
    Task task;
    if (options.contains("work_ms")) {
        thread_local std::mt19937 random{std::random_device()()};
        const auto& limits = options["work_ms"];
        task.work = milliseconds(std::uniform_int_distribution<std::int64_t>(
            limits[0].get<std::int64_t>(), limits[1].get<std::int64_t>())(random));
    }
    const auto body = Json::parse(message.body, nullptr, false);
    if (!body.is_object()) return task;
    const auto number = [&](const char* name) -> std::optional<milliseconds> {
        const auto found = body.find(name);
        if (found == body.end() || !found->is_number()) return {};
        return milliseconds(found->get<std::int64_t>());
    };
    const auto text = [&](const char* name) {
        const auto found = body.find(name);
        return found != body.end() && found->is_string() ? found->get<std::string>() : "";
    };
    task.work = number("work_ms").value_or(task.work);
    task.block = number("block_ms").value_or(task.block);
    task.until_lost = text("until") == "lost";
    task.stubborn = body.value("stubborn", Json(false)) == Json(true);
    task.after = number("after_ms");
    task.reason = text("reason");
    const auto times = number("times");
    if (!text("do").empty() && (!times || message.attempt <= times->count())) task.act = text("do");
    return task;
}

/// Does the handler's work. Throws Stopped if the drain times out.
void work(const Message& message, const Task& task) {
    std::mutex mutex;
    std::condition_variable_any told;
    std::unique_lock lock(mutex);
    const auto never = [] { return false; };
    if (task.stubborn) {
        std::this_thread::sleep_for(task.work);
        return;
    }
    const auto stop = message.stop_token();
    if (task.until_lost) {
        told.wait(lock, stop, never);
    } else if (task.work > 0ms) {
        told.wait_for(lock, stop, task.work, never);
    }
    if (stop.stop_requested() && !message.lease_lost()) throw orderlane::Stopped();
}

Outcome handle(const Message& message, const Json& options) {
    if (options.value("quiet", false) && !options.contains("work_ms")) return Outcome::ok();
    const auto task = read_task(message, options);
    std::this_thread::sleep_for(task.block);
    work(message, task);
    // A future or a coroutine would not compile, so an empty function stands for unrun work.
    if (task.act == "unrun") std::function<void(const Message&)>()(message);
    if (task.act == "retry" && task.after) return Outcome::retry_after(*task.after);
    if (task.act == "retry") return Outcome::retry();
    if (task.act == "reject") return Outcome::reject(task.reason);
    if (task.act == "defer") return Outcome::defer();
    if (task.act == "raise") throw std::runtime_error(task.reason);
    return Outcome::ok();
}

/// Writes events, and counts messages handled successfully.
class Witness {
public:
    explicit Witness(const Json& options)
        : history_(options), quiet_(options.value("quiet", false)) {}

    std::atomic<std::int64_t> handled = 0;

    void start(const Message& message) {
        history_.handle_start(message);
        const std::lock_guard lock(mutex_);
        at_work_.insert(name_of(message));
        if (!quiet_) say(message_line(message, "start"));
    }
    void end(const Message& message, Outcome::Kind kind) {
        if (kind == Outcome::Kind::ok) ++handled;
        history_.handle_end(message, orderlane::name_of(kind));
        const std::lock_guard lock(mutex_);
        at_work_.erase(name_of(message));
        if (quiet_) return;
        say({{"e", "end"},
             {"lease", message.lease_id},
             {"queue", message.queue},
             {"offset", message.offset},
             {"outcome", orderlane::name_of(kind)}});
    }
    /// Ignores messages of a batch that have not started or have ended.
    void lost(const Message& message) {
        const std::lock_guard lock(mutex_);
        if (quiet_ || !at_work_.contains(name_of(message))) return;
        say({{"e", "lost"}, {"lease", message.lease_id}, {"queue", message.queue}});
    }

private:
    using Name = std::tuple<std::string, std::string, std::int64_t>;
    static Name name_of(const Message& message) {
        return {message.topic, message.queue, message.lease_id};
    }

    std::mutex mutex_;
    std::set<Name> at_work_;
    History history_;
    bool quiet_;
};

/// Reports a start and an end for each message of a batch.
orderlane::BatchResult handle_batch(const orderlane::KeyBatch& batch, const Json& options,
                                    Witness& witness) {
    for (std::size_t done = 0; done < batch.size(); ++done) {
        const auto& message = batch[done];
        witness.start(message);
        const auto outcome = [&] {
            try {
                const auto ended = handle(message, options);
                return message.lease_lost() ? Outcome::defer() : ended;
            } catch (const orderlane::Stopped&) {
                return Outcome::defer();
            } catch (const std::exception& error) {
                return Outcome::retry(error.what());
            }
        }();
        witness.end(message, outcome.kind());
        if (!outcome.is_ok()) return {done, outcome};
    }
    return {batch.size()};
}

orderlane::ConsumerOptions consumer_options(const Json& given, Witness& witness, bool batches) {
    orderlane::ConsumerOptions options{.servers = servers(given),
                                       .group = given.value("group", "")};
    options.topics = given.value("topics", options.topics);
    options.concurrency = given.value("concurrency", options.concurrency);
    if (given.contains("prefetch")) options.prefetch = given["prefetch"].get<int>();
    options.max_run = given.value("max_run", options.max_run);
    options.client_id = given.value("client_id", "");
    options.ack_linger = time(given, "ack_linger_ms", options.ack_linger);
    options.request_timeout = time(given, "request_timeout_ms", options.request_timeout);
    options.drain_timeout = time(given, "drain_timeout_ms", options.drain_timeout);
    options.token = given.value("token", "");
    options.tls = tls(given);
    if (!batches) {
        options.hooks.handle_start = [&](const Message& message) { witness.start(message); };
        options.hooks.handle_end = [&](const Message& message, Outcome::Kind kind) {
            witness.end(message, kind);
        };
    }
    options.hooks.lease_lost = [&](const Message& message) { witness.lost(message); };
    options.hooks.error = [](const orderlane::Error& error) { say(error_line(error)); };
    return options;
}

void run(orderlane::Consumer& consumer, const std::string& form, const Json& options,
         Witness& witness) {
    if (form == "batches") {
        consumer.run_batches([&](const orderlane::KeyBatch& batch) {
            return handle_batch(batch, options, witness);
        });
    } else if (form == "iterator") {
        std::vector<orderlane::Delivery> kept;
        while (auto delivery = consumer.next()) {
            if (read_task(**delivery, options).act == "forget") {
                kept.push_back(std::move(*delivery));
                continue;
            }
            try {
                delivery->settle(handle(**delivery, options));
            } catch (const orderlane::Stopped&) {
                delivery->settle(Outcome::defer());
            } catch (const std::runtime_error& error) {
                delivery->settle(Outcome::retry(error.what()));
            }
        }
    } else {
        consumer.run([&](const Message& message) { return handle(message, options); });
    }
}

}  // namespace

int consume(const Json& options) {
    const auto form = options.value("form", "handler");
    auto witness = std::make_unique<Witness>(options);
    Json failure;
    bool handlers_go_on = false;
    {
        orderlane::Consumer consumer(consumer_options(options, *witness, form == "batches"));
        const orderlane::StopOnSignals signals(consumer);
        try {
            run(consumer, form, options, *witness);
        } catch (const orderlane::Error& error) {
            failure = error_line(error);
            failure.erase("e");
        } catch (const std::logic_error& error) {
            failure = {{"kind", "misuse"}, {"text", error.what()}};
        }
        handlers_go_on = consumer.abandoned() > 0;
    }
    const auto handled = witness->handled.load();
    if (handlers_go_on) {
        // The abandoned handlers use it until the process ends, which is now.
        static_cast<void>(witness.release());
    } else {
        witness.reset();
    }
    say({{"e", "stopped"}, {"handled", handled}, {"error", failure}});
    std::_Exit(failure.is_null() ? 0 : 1);
}

}  // namespace conformance
