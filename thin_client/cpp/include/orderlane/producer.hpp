// The producer: stores messages, those of one sharding key in order.
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

/// A queue chosen by the producer instead of by a key.
class Queue {
public:
    /// The queue's position in the order by broker name, then id. A negative position is refused
    /// with std::invalid_argument, one that the topic does not have with code 11.
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

/// One message to send. Its queue is chosen by `queue`, else `sharding_key`, else the value at
/// `sharding_path`, else the key; without any of them, round robin.
struct Outgoing {
    std::string topic;
    std::string body;
    /// The message key: for searches, and the order key in groups that use KEY.
    std::optional<std::string> key = {};
    /// Sends all messages of one key to one queue, in the order of sending. Surrounding blanks
    /// (U+0000 to U+0020) are not part of a key.
    std::optional<std::string> sharding_key = {};
    /// The sharding key's place in a JSON body: `$.a.b[0]['a name']`, names and indexes only.
    std::optional<std::string> sharding_path = {};
    std::optional<Queue> queue = {};
    std::optional<std::string> tag = {};
    /// UNIQ_KEY sets the message's id; by default one is generated.
    std::map<std::string, std::string> properties = {};
    /// Postpones the delivery, in whole seconds; needs a broker with delays.
    std::optional<std::chrono::milliseconds> delay = {};
};

/// Options of a Producer. All but `servers` have defaults.
struct ProducerOptions {
    Servers servers;
    /// Limits a send.
    std::chrono::milliseconds timeout{10'000};
    std::string token = {};
    std::optional<Tls> tls = {};
    /// Returns the trace context of a message, which travels in its properties.
    std::function<TraceContext()> trace = {};
    Logger logger = {};
};

/// Sends messages. Threads may share it; their calls then wait for each other.
///
/// A message is resent under the same id until it is stored or time is up, so it may be stored
/// twice; consumers recognize duplicates by `message_id`. One call is sent at a time, in the order
/// of calling. When a call fails, calls already waiting with messages of the same keys fail too,
/// unsent, so they cannot overtake a message that the application sends again. Later calls are
/// sent. After a fork it opens its own connection in the child.
class Producer {
public:
    /// Throws std::invalid_argument with an explanation for invalid options.
    explicit Producer(ProducerOptions options);
    Producer(Producer&&) noexcept;
    Producer& operator=(Producer&&) noexcept;
    ~Producer();

    /// Stores one message and returns its id. Throws SendFailed, or std::invalid_argument for an
    /// invalid message or a `timeout` that is not positive. `timeout` overrides the producer's.
    std::string send(const Outgoing& message,
                     std::optional<std::chrono::milliseconds> timeout = {});

    /// Stores messages, those of one sharding key in order, and returns their ids. Throws as
    /// `send`. Large batches take several requests; none is sent after one that failed.
    std::vector<std::string> send_batch(std::span<const Outgoing> messages,
                                        std::optional<std::chrono::milliseconds> timeout = {});
    std::vector<std::string> send_batch(const std::vector<Outgoing>& messages,
                                        std::optional<std::chrono::milliseconds> timeout = {}) {
        return send_batch(std::span<const Outgoing>(messages), timeout);
    }

    /// Closes the connection; another send opens a new one.
    void close();

private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

/// A unique id: 32 upper-case hexadecimal digits.
[[nodiscard]] std::string new_message_id();

/// Java's `String.hashCode`: the queue of a sharding key is the absolute value of its remainder by
/// the number of queues. Throws std::invalid_argument if the key is not UTF-8.
[[nodiscard]] std::int32_t key_hash(std::string_view key);

}  // namespace orderlane
