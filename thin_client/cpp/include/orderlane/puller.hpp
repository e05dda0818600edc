// Pull, settle and extend one by one, for scripts and tests: no threads, nothing by itself.
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
    /// For connecting, and for an answer beyond a pull's own wait.
    std::chrono::milliseconds request_timeout{3'000};
    std::string token = {};
    std::optional<Tls> tls = {};
};

/// Takes messages of a group and says what became of them, call by call. For one thread at a time.
///
/// Nothing is extended, retried or kept in order here: of several messages pulled, those of one
/// `order_key` have to be handled one after the other, each before its `time_left()` is over. Every
/// method throws ConnectionLost, Refused, ProxyFault or ProtocolError; another call connects anew.
class Puller {
public:
    /// Throws std::invalid_argument, in a sentence, for options that make no sense.
    explicit Puller(PullerOptions options);
    Puller(Puller&&) noexcept;
    Puller& operator=(Puller&&) noexcept;
    ~Puller();

    /// Takes up to so many messages, waiting for a first one; empty if none came.
    [[nodiscard]] std::vector<Message> pull(
        int max_messages = 1, std::chrono::milliseconds wait = std::chrono::seconds(1));
    /// False: its lease was over, so that someone else may have got it.
    bool settle(const Message& message, const Outcome& outcome = Outcome::ok());
    /// Lets the lease end so long from now, one visibility time-out at most; false: it is over.
    bool extend(const Message& message, std::chrono::milliseconds length);
    /// Ends the connection; another call opens a new one.
    void close();

private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace orderlane
