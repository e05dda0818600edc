// The producer: stores messages, those of one sharding key in their order.
#pragma once

#include <orderlane/options.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace orderlane {

/// A queue named by the producer, instead of by a key.
class Queue {
public:
    /// The queue's place in the order by broker name, then id. A message for a place that its topic
    /// does not have is refused, a negative one by std::invalid_argument, any other with code 11.
    [[nodiscard]] static Queue number(int place) { return Queue(place < 0 ? none : place); }
    static Queue number(bool) = delete;
    /// Any queue.
    [[nodiscard]] static Queue random() { return Queue(-2); }
    [[nodiscard]] int partition() const noexcept { return partition_; }

private:
    static constexpr int none = -3;
    explicit Queue(int partition) : partition_(partition) {}
    int partition_;
};

/// One message to send. What chooses its queue: `queue`, else `sharding_key`, else what
/// `sharding_path` finds, else the key; with none of them the queues take turns.
struct Outgoing {
    std::string topic;
    std::string body;
    /// By which it can be found, and which orders it in groups that use KEY.
    std::optional<std::string> key = {};
    /// All messages of one go to one queue, in the order of sending. Blanks around a key (U+0000 to
    /// U+0020) are no part of it.
    std::optional<std::string> sharding_key = {};
    /// Where the sharding key stands in a JSON body: `$.a.b[0]['a name']`, names and places alone.
    std::optional<std::string> sharding_path = {};
    std::optional<Queue> queue = {};
    std::optional<std::string> tag = {};
    /// UNIQ_KEY among them is the message's id; else one is made.
    std::map<std::string, std::string> properties = {};
    /// Delivered so much later, in whole seconds; needs a broker with delays.
    std::optional<std::chrono::milliseconds> delay = {};
};

/// Options of a Producer. All but `servers` have defaults.
struct ProducerOptions {
    Servers servers;
    /// How long a send may try.
    std::chrono::milliseconds timeout{10'000};
    std::string token = {};
    std::optional<Tls> tls = {};
    /// The trace that a message belongs to; it travels as properties.
    std::function<TraceContext()> trace = {};
    Logger logger = {};
};

/// Sends messages; may be shared by threads, which then wait for each other.
///
/// A message is sent again under the same id until it is stored or time is up, so it may be stored
/// twice; consumers can tell by `message_id`. One call at a time goes out, in the order of calling.
/// When one fails, calls that wait behind it with messages of its keys fail too, unsent: what the
/// application sends again is not overtaken. Calls made later go. In a process that was forked it
/// makes a connection of its own.
class Producer {
public:
    /// Throws std::invalid_argument, in a sentence, for options that make no sense.
    explicit Producer(ProducerOptions options);
    Producer(Producer&&) noexcept;
    Producer& operator=(Producer&&) noexcept;
    ~Producer();

    /// Stores one message and returns its id. Throws SendFailed, or std::invalid_argument for what
    /// cannot be sent. `timeout`: for this call.
    std::string send(const Outgoing& message,
                     std::optional<std::chrono::milliseconds> timeout = {});

    /// Stores messages, those of one sharding key in their order, and returns their ids. Throws as
    /// `send`; large batches go in several requests, and after one that failed none follows.
    std::vector<std::string> send_batch(std::span<const Outgoing> messages,
                                        std::optional<std::chrono::milliseconds> timeout = {});
    std::vector<std::string> send_batch(const std::vector<Outgoing>& messages,
                                        std::optional<std::chrono::milliseconds> timeout = {}) {
        return send_batch(std::span<const Outgoing>(messages), timeout);
    }

    /// Ends the connection; another send opens a new one.
    void close();

private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

/// 32 upper-case hexadecimal digits, unique.
[[nodiscard]] std::string new_message_id();

/// Java's `String.hashCode`: the queue of a sharding key is the absolute value of its remainder by
/// the number of queues. Throws std::invalid_argument if the key is no UTF-8.
[[nodiscard]] std::int32_t key_hash(std::string_view key);

}  // namespace orderlane
