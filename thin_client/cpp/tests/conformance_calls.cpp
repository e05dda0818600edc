// The modes in which each input line of JSON is one call.
#include "conformance_lines.hpp"

#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <sys/wait.h>
#include <unistd.h>

namespace conformance {
namespace {

using orderlane::Message;
using orderlane::Outcome;
using std::chrono::milliseconds;

/// Calls `answer` with each line of the input.
void each_line(const std::function<void(const Json&)>& answer) {
    for (std::string line; std::getline(std::cin, line);) answer(Json::parse(line));
}

std::optional<std::string> text(const Json& from, const char* name) {
    const auto found = from.find(name);
    if (found == from.end() || found->is_null()) return {};
    return found->get<std::string>();
}

std::optional<milliseconds> length(const Json& from, const char* name) {
    const auto found = from.find(name);
    if (found == from.end() || found->is_null()) return {};
    return milliseconds(found->get<std::int64_t>());
}

orderlane::Outgoing outgoing(const Json& from) {
    orderlane::Outgoing message{.topic = text(from, "topic").value_or(""),
                                .body = text(from, "body").value_or("")};
    message.key = text(from, "key");
    message.sharding_key = text(from, "sharding_key");
    message.sharding_path = text(from, "sharding_path");
    message.tag = text(from, "tag");
    message.delay = length(from, "delay_ms");
    if (from.contains("properties") && from["properties"].is_object()) {
        message.properties = from["properties"].get<std::map<std::string, std::string>>();
    }
    const auto queue = from.value("queue", Json());
    if (queue.is_number()) message.queue = orderlane::Queue::number(queue.get<int>());
    if (queue == "random") message.queue = orderlane::Queue::random();
    return message;
}

Json result(const std::string& id) {
    return {{"message_id", id}, {"error", Json()}, {"code", Json()}, {"unknown", false}};
}

/// Makes one call and returns a result for each message.
Json send(orderlane::Producer& producer, const std::vector<orderlane::Outgoing>& messages,
          std::optional<milliseconds> timeout) {
    Json results = Json::array();
    try {
        for (const auto& id : producer.send_batch(messages, timeout)) results.push_back(result(id));
    } catch (const orderlane::SendFailed& error) {
        std::map<std::string, const orderlane::SendFailure*> failures;
        for (const auto& each : error.failures) failures[each.message_id] = &each;
        for (const auto& id : error.message_ids) {
            auto line = result(id);
            if (const auto found = failures.find(id); found != failures.end()) {
                const auto& failure = *found->second;
                line["error"] = failure.reason;
                if (failure.code) line["code"] = *failure.code;
                line["unknown"] = failure.outcome_unknown;
            }
            results.push_back(line);
        }
    } catch (const std::invalid_argument& error) {
        for (std::size_t index = 0; index < messages.size(); ++index) {
            auto line = result("");
            line["message_id"] = Json();
            line["error"] = error.what();
            results.push_back(line);
        }
    }
    return results;
}

Json send(orderlane::Producer& producer, const Json& call) {
    std::vector<orderlane::Outgoing> messages;
    for (const auto& each : call.at("messages")) messages.push_back(outgoing(each));
    const auto timeout = length(call, "timeout_ms");
    if (call.value("batch", false)) return send(producer, messages, timeout);
    Json results = Json::array();
    for (const auto& each : messages) results += send(producer, {each}, timeout).at(0);
    return results;
}

/// Runs `work` in a forked process.
void in_child(const std::function<void()>& work) {
    const auto child = ::fork();
    if (child == 0) {
        work();
        std::cout.flush();
        std::_Exit(0);
    }
    ::waitpid(child, nullptr, 0);
}

Outcome outcome(const Json& call) {
    const auto act = text(call, "do").value_or("ok");
    if (act == "retry") {
        const auto after = length(call, "after_ms");
        return after ? Outcome::retry_after(*after) : Outcome::retry();
    }
    if (act == "reject") return Outcome::reject(text(call, "reason").value_or(""));
    if (act == "defer") return Outcome::defer();
    return Outcome::ok();
}

}  // namespace

int produce(const Json& options) {
    orderlane::ProducerOptions given{.servers = servers(options)};
    given.token = options.value("token", "");
    given.tls = tls(options);
    orderlane::Producer producer(given);
    each_line([&](const Json& call) {
        if (call.at("op") == "hash") {
            const auto key = call.at("key").get<std::string>();
            say({{"e", "hash"}, {"hash", orderlane::key_hash(key)}});
        } else if (call.value("process", "") == "child") {
            in_child([&] { say({{"e", "sent"}, {"results", send(producer, call)}}); });
        } else {
            say({{"e", "sent"}, {"results", send(producer, call)}});
        }
    });
    producer.close();
    say({{"e", "stopped"}, {"error", Json()}});
    return 0;
}

int oneshot(const Json& options) {
    orderlane::PullerOptions given{.servers = servers(options),
                                   .group = options.value("group", "")};
    given.topics = options.value("topics", given.topics);
    given.client_id = options.value("client_id", "");
    given.request_timeout = time(options, "request_timeout_ms", given.request_timeout);
    given.token = options.value("token", "");
    given.tls = tls(options);
    orderlane::Puller puller(given);
    std::map<std::int64_t, Message> held;
    const auto answer = [&](const Json& call) {
        const auto op = call.at("op").get<std::string>();
        if (op == "pull") {
            Json lines = Json::array();
            const auto wait = length(call, "wait_ms").value_or(milliseconds(1000));
            for (const auto& message : puller.pull(call.value("max", 1), wait)) {
                held[message.lease_id] = message;
                lines.push_back(message_line(message, "start"));
            }
            say({{"e", "pulled"}, {"messages", lines}});
        } else if (op == "settle") {
            const auto& message = held.at(call.at("lease").get<std::int64_t>());
            say({{"e", "settled"}, {"held", puller.settle(message, outcome(call))}});
        } else {
            const auto& message = held.at(call.at("lease").get<std::int64_t>());
            const bool is_held = puller.extend(message, length(call, "ms").value());
            say({{"e", "extended"}, {"held", is_held}});
        }
    };
    each_line([&](const Json& call) {
        try {
            answer(call);
        } catch (const orderlane::Error& error) {
            say(error_line(error));
        }
    });
    say({{"e", "stopped"}, {"error", Json()}});
    return 0;
}

}  // namespace conformance
