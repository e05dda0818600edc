#include "delivery.hpp"

#include "json_path.hpp"
#include "session.hpp"
#include "text.hpp"
#include "version.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace orderlane {

std::string new_message_id() {
    auto id = detail::random_hex(16);
    std::transform(id.begin(), id.end(), id.begin(),
                   [](char digit) { return digit >= 'a' ? static_cast<char>(digit - 32) : digit; });
    return id;
}

std::int32_t key_hash(std::string_view key) {
    if (!detail::is_utf8(key)) throw std::invalid_argument("the sharding key is not UTF-8");
    std::uint32_t value = 0;
    for (const char16_t unit : detail::utf16_units(key)) value = 31 * value + unit;
    return static_cast<std::int32_t>(value);
}

namespace detail {
namespace {

/// The property that holds a message's unique id, as in RocketMQ.
constexpr const char* unique_id = "UNIQ_KEY";
/// The proxy's default request limit, and the part of it that a batch fills.
constexpr std::size_t max_request_bytes = 5'000'000, batch_bytes = 2'000'000;
/// Limit of one try; after that the next one begins.
constexpr Nanos longest_try_ns = 3'000 * ms;

constexpr int unknown_error = 10, illegal = 11, timed_out = 12, too_fast = 15, not_allowed = 71;

/// Codes after which the same message is resent under the same id: unknown error, timeout, too
/// fast, shutting down, behind one that failed.
bool is_tried_again(int code) {
    return code == unknown_error || code == timed_out || code == too_fast || code == 20 ||
           code == 70;
}

/// Codes after which no message of a batch was stored, if they come without results of the
/// messages.
bool is_refused_whole(int code) {
    return code == illegal || code == too_fast || code == not_allowed;
}

/// Codes after which the message may or may not have been stored.
bool is_doubtful(int code) { return code == unknown_error || code == timed_out; }

[[noreturn]] void refuse(const Outgoing& message, const std::string& why) {
    throw std::invalid_argument("a message to '" + message.topic + "' cannot be sent: " + why);
}

std::optional<std::string> sharding_key(const Outgoing& message) {
    if (message.sharding_key) return plain_key(*message.sharding_key);
    try {
        if (message.sharding_path) {
            const auto found = JsonPath(*message.sharding_path).find(message.body);
            if (found) return found;
        }
        auto key = plain_key(message.key.value_or(""));
        return key.empty() ? std::nullopt : std::optional(std::move(key));
    } catch (const std::invalid_argument& error) {
        refuse(message, error.what());
    }
}

void check(const Outgoing& message) {
    if (message.topic.empty()) refuse(message, "its topic is empty");
    if (message.queue && message.queue->partition() < -2) {
        refuse(message, "queue is negative: expected 0 or more");
    }
    if (message.delay && message.delay->count() < 0) {
        refuse(message, "delay is negative: expected 0 or more");
    }
    const auto check_text = [&](const std::string& text) {
        if (!is_utf8(text)) refuse(message, "topic, key or tag is not UTF-8");
    };
    check_text(message.topic);
    check_text(message.key.value_or(""));
    check_text(message.tag.value_or(""));
}

/// Checks the application's properties, and those of its trace.
void check_properties(const Outgoing& message,
                      const std::map<std::string, std::string>& properties) {
    for (const auto& [name, value] : properties) {
        if (!is_utf8(name) || !is_utf8(value)) refuse(message, "a property is not UTF-8");
    }
}

void choose_queue(const Outgoing& from, WireMessage& to) {
    auto& message = to.message;
    message.__set_partitionId(from.queue ? from.queue->partition() : -1);
    if (from.queue) {
        const int place = from.queue->partition();
        if (place >= 0) to.key = SendKey(from.topic, true, place);
    } else if (const auto key = sharding_key(from)) {
        if (!is_utf8(*key)) refuse(from, "its sharding key is not UTF-8");
        message.__set_hashId(key_hash(*key));
        to.key = SendKey(from.topic, false, message.hashId);
    }
}

WireMessage wire_message(const Outgoing& from, const Sender& sender) {
    check(from);
    WireMessage to;
    auto properties = from.properties;
    to.id = properties.try_emplace(unique_id, new_message_id()).first->second;
    if (!sender.trace.traceparent.empty()) {
        properties.try_emplace("traceparent", sender.trace.traceparent);
        if (!sender.trace.tracestate.empty()) {
            properties.try_emplace("tracestate", sender.trace.tracestate);
        }
    }
    check_properties(from, properties);
    to.message.__set_topic(from.topic);
    to.message.__set_body(from.body);
    to.message.__set_version(client_version);
    to.message.__set_properties(std::move(properties));
    if (from.key) to.message.__set_key(*from.key);
    if (from.tag) to.message.__set_tags(*from.tag);
    if (!sender.token.empty()) to.message.__set_token(sender.token);
    if (from.delay) {
        constexpr Nanos second = 1'000 * ms;
        to.deliver_at_s = (sender.wall_ns + nanos(*from.delay) + second - 1) / second;
    }
    choose_queue(from, to);
    return to;
}

/// An upper estimate of a message's size on the wire.
std::size_t size_of(const gen::producer::Message& message) {
    std::size_t size = message.body.size() + message.topic.size() + message.key.size() +
                       message.tags.size() + message.token.size() + 160;
    for (const auto& [name, value] : message.properties) size += name.size() + value.size() + 16;
    return size;
}

}  // namespace

std::vector<Delivery> deliveries(std::span<const Outgoing> messages, const Sender& sender,
                                 Nanos deadline_ns) {
    std::vector<std::vector<WireMessage>> requests;
    std::size_t room = 0;
    for (const auto& each : messages) {
        auto message = wire_message(each, sender);
        const auto size = size_of(message.message);
        if (size > max_request_bytes) {
            refuse(each, "it has " + std::to_string(size) + " bytes; the limit is " +
                             std::to_string(max_request_bytes));
        }
        if (requests.empty() || size > room || message.deliver_at_s) {
            requests.emplace_back();
            room = batch_bytes;
        }
        room = message.deliver_at_s ? 0 : room - std::min(size, room);
        requests.back().push_back(std::move(message));
    }
    std::vector<Delivery> made;
    for (auto& each : requests) made.emplace_back(std::move(each), deadline_ns);
    return made;
}

Nanos Delivery::try_ns(Nanos now) const {
    return std::clamp(deadline_ns_ - now, 1 * ms, longest_try_ns);
}

std::vector<std::size_t> Delivery::open_indexes() const {
    std::vector<std::size_t> open;
    for (std::size_t index = 0; index < messages_.size(); ++index) {
        if (!stored_.contains(index)) open.push_back(index);
    }
    return open;
}

std::vector<const WireMessage*> Delivery::open() const {
    std::vector<const WireMessage*> open;
    for (const auto index : open_indexes()) open.push_back(&messages_[index]);
    return open;
}

std::vector<std::string> Delivery::ids() const {
    std::vector<std::string> ids;
    for (const auto& each : messages_) ids.push_back(each.id);
    return ids;
}

std::vector<SendKey> Delivery::keys() const {
    std::vector<SendKey> keys;
    for (const auto* each : open()) {
        if (each->key) keys.push_back(*each->key);
    }
    return keys;
}

std::optional<Nanos> Delivery::pause_after(const gen::producer::Result& result, Nanos now,
                                           double jitter) {
    const auto sent = open_indexes();
    if (result.code == 0) {
        stored_.insert(sent.begin(), sent.end());
        return {};
    }
    std::string text = result.msg.empty() ? "no reason given" : result.msg;
    // A batch may be stored in part, unless it was refused whole.
    const bool is_known = sent.size() == 1 || is_refused_whole(result.code);
    const bool is_detailed = result.__isset.messages && result.messages.size() == sent.size();
    std::map<std::size_t, Reason> reasons;
    std::optional<int> final_code;
    for (std::size_t place = 0; place < sent.size(); ++place) {
        int code = is_known ? result.code : unknown_error;
        if (is_detailed) {
            code = result.messages[place].code;
            // Absent: same as the previous one.
            if (code != 0 && !result.messages[place].msg.empty()) text = result.messages[place].msg;
        }
        if (code == 0) {
            stored_.insert(sent[place]);
            continue;
        }
        reasons[sent[place]] = {text, code};
        if (is_doubtful(code)) doubtful_.insert(sent[place]);
        if (!is_tried_again(code) && !final_code) final_code = code;
    }
    if (reasons.empty()) return {};
    const bool again = !final_code && is_tried_again(result.code);
    return pause(reasons, final_code.value_or(result.code), again, now, jitter);
}

Nanos Delivery::pause_after(const Error& error, bool sent, Nanos now, double jitter) {
    std::map<std::size_t, Reason> reasons;
    for (const auto index : open_indexes()) {
        if (sent) doubtful_.insert(index);
        reasons[index] = {error.what(), error.code()};
    }
    return pause(reasons, error.code(), error.retriable(), now, jitter);
}

Nanos Delivery::pause(const std::map<std::size_t, Reason>& reasons, std::optional<int> code,
                      bool again, Nanos now, double jitter) {
    ++failures_;
    const Nanos pause_ns = backoff_ns(failures_, jitter);
    if (again && now + pause_ns < deadline_ns_) return pause_ns;
    std::vector<SendFailure> failures;
    bool any_doubtful = false;
    for (const auto& [index, reason] : reasons) {
        const bool doubtful = doubtful_.contains(index);
        any_doubtful |= doubtful;
        failures.push_back({messages_[index].id, reason.text, reason.code, doubtful});
    }
    const auto text = sentence(failures.front().reason,
                               any_doubtful ? "may have been stored" : "not stored");
    throw SendFailed(text, code, std::move(failures), ids());
}

SendFailed Delivery::not_sent(const std::string& why) const {
    std::vector<SendFailure> failures;
    for (const auto& id : ids()) failures.push_back({id, why, {}, false});
    return {sentence(why, "not stored"), {}, std::move(failures), ids()};
}

std::vector<SendFailure> Delivery::untried() const {
    std::vector<SendFailure> failures;
    for (const auto* each : open()) {
        failures.push_back({each->id, "not sent: an earlier part of the batch failed", {}, false});
    }
    return failures;
}

std::string Delivery::sentence(const std::string& why, const char* end) const {
    const auto left = open();
    const auto others =
        left.size() > 1 ? " and " + std::to_string(left.size() - 1) + " others" : std::string();
    return "sending to " + messages_.front().message.topic + " failed: " + why + " (message " +
           left.front()->id + others + ": " + end + ")";
}

}  // namespace detail

}  // namespace orderlane
