#include "conformance_lines.hpp"

#include <cstdio>
#include <ctime>
#include <unistd.h>

namespace conformance {
namespace {

using orderlane::Error;
using orderlane::ErrorKind;
using orderlane::Message;

Json text_or_null(const std::optional<std::string>& text) { return text ? Json(*text) : Json(); }

std::string dumped(const Json& value) {
    return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// An order key in readable form: text, or 0x and hex if it is not UTF-8.
Json key_text(const std::optional<std::string>& key) {
    if (!key) return {};
    try {
        static_cast<void>(Json(*key).dump());
        return *key;
    } catch (const Json::type_error&) {
        std::string hex = "0x";
        for (const unsigned char byte : *key) {
            hex += "0123456789abcdef"[byte >> 4];
            hex += "0123456789abcdef"[byte & 0xF];
        }
        return hex;
    }
}

std::int64_t now(clockid_t clock) {
    timespec time{};
    clock_gettime(clock, &time);
    return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

const char* kind_of(const Error& error) {
    switch (error.kind()) {
        case ErrorKind::connection: return "connection";
        case ErrorKind::refused: return "refused";
        case ErrorKind::fault: return "fault";
        case ErrorKind::protocol: return "protocol";
        case ErrorKind::send: return "send";
    }
    return "";
}

}  // namespace

void say(const Json& line) {
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    std::puts(dumped(line).c_str());
    std::fflush(stdout);
}

Json message_line(const Message& m, const char* event) {
    return {{"e", event},
            {"topic", m.topic},
            {"queue", m.queue},
            {"offset", m.offset},
            {"lease", m.lease_id},
            {"key", text_or_null(m.key)},
            {"order_key", key_text(m.order_key)},
            {"tag", text_or_null(m.tag)},
            {"properties", m.properties},
            {"attempt", m.attempt},
            {"born_at_ms", m.born_at_ms ? Json(*m.born_at_ms) : Json()},
            {"message_id", text_or_null(m.message_id)},
            {"left_ms", static_cast<double>(m.time_left().count()) / 1e6},
            {"body", m.body}};
}

Json error_line(const Error& error) {
    return {{"e", "error"},
            {"kind", kind_of(error)},
            {"code", error.code() ? Json(*error.code()) : Json()},
            {"retriable", error.retriable()},
            {"text", error.what()}};
}

orderlane::Servers servers(const Json& options) {
    return options.at("servers").get<std::string>();
}

std::optional<orderlane::Tls> tls(const Json& options) {
    if (!options.contains("tls") || options["tls"].is_null()) return {};
    const auto& given = options["tls"];
    return orderlane::Tls{.ca_file = given.value("ca", ""),
                          .cert_file = given.value("cert", ""),
                          .key_file = given.value("key", ""),
                          .server_name = given.value("server_name", "")};
}

std::chrono::milliseconds time(const Json& options, const char* name,
                               std::chrono::milliseconds otherwise) {
    return std::chrono::milliseconds(options.value(name, otherwise.count()));
}

History::History(const Json& options)
    : node_(options.value("node", "")),
      group_(options.value("group", "")),
      consumer_(options.value("client_id", "")),
      clock_offset_ns_(options.value("clock_offset_ns", std::int64_t{0})) {
    const auto file = options.value("history", "");
    if (file.empty()) return;
    file_.open(file, std::ios::app | std::ios::binary);
    write({{"e", "start"}, {"pid", ::getpid()}, {"parts", {"consumer"}}});
}

History::~History() { write({{"e", "stop"}}); }

void History::handle_start(const Message& message) { handling("handle_start", message, nullptr); }

void History::handle_end(const Message& message, const char* outcome) {
    handling("handle_end", message, outcome);
}

void History::handling(const char* event, const Message& m, const char* outcome) {
    if (!file_.is_open()) return;
    Json line{{"e", event},
              {"group", group_},
              {"topic", m.topic},
              {"queue", m.queue.substr(0, m.queue.find('#'))},
              {"offset", m.offset},
              {"msg", text_or_null(m.message_id)},
              {"order", key_text(m.order_key)},
              {"attempt", m.attempt},
              {"lease", m.lease_id},
              {"consumer", consumer_}};
    if (outcome != nullptr) line["outcome"] = outcome;
    write(std::move(line));
}

void History::write(Json event) {
    if (!file_.is_open()) return;
    const std::lock_guard lock(mutex_);
    event["t_ns"] = now(CLOCK_MONOTONIC) + clock_offset_ns_;
    event["wall_ms"] = now(CLOCK_REALTIME) / 1'000'000;
    event["node"] = node_;
    file_ << dumped(event) + "\n" << std::flush;
}

}  // namespace conformance
