// Single pulls, settles and extends, for scripts and tests: no threads, nothing automatic.
#pragma once

#include <orderlane/options.hpp>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

namespace orderlane {

/// Options of a Puller. All but `servers` and `group` have defaults.
struct PullerOptions {
    Servers servers;
    std::string group;
    std::vector<std::string> topics = {};
    std::string client_id = {};
    /// Limits the wait for a connection or an answer, beyond a pull's own wait.
    std::chrono::milliseconds request_timeout{3'000};
    std::string token = {};
    std::optional<Tls> tls = {};
};

/// Pulls and settles messages of a group call by call. Not thread-safe.
///
/// It extends, retries and orders nothing: of the messages pulled, handle those of one `order_key`
/// one after the other, each within its `time_left()`. Every method may throw ConnectionLost,
/// Refused, ProxyFault or ProtocolError; the next call reconnects.
class Puller {
public:
    /// Throws std::invalid_argument with an explanation for invalid options.
    explicit Puller(PullerOptions options);
    Puller(Puller&&) noexcept;
    Puller& operator=(Puller&&) noexcept;
    ~Puller();

    /// Pulls up to `max_messages`, waiting up to `wait` for the first; possibly none.
    [[nodiscard]] std::vector<Message> pull(
        int max_messages = 1, std::chrono::milliseconds wait = std::chrono::seconds(1));
    /// Sends the outcome. False: its lease had expired, and another client may have the message.
    bool settle(const Message& message, const Outcome& outcome = Outcome::ok());
    /// Makes the lease expire this long from now, at most one visibility timeout. False: it had
    /// already expired.
    bool extend(const Message& message, std::chrono::milliseconds length);
    /// Closes the connection; another call opens a new one.
    void close();

private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace orderlane
