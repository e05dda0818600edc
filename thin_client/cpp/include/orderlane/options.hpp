// What a client can be told.
#pragma once

#include <orderlane/errors.hpp>
#include <orderlane/message.hpp>
#include <orderlane/outcome.hpp>

#include <chrono>
#include <cstddef>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace orderlane {

/// Where proxies listen: `host:port` (port 9713 by default, `[::1]:9713` for IPv6), several
/// separated by commas, or a list. The next is tried when one fails. A name with several addresses
/// has each of them tried in turn, and is resolved anew for every connection.
class Servers {
public:
    Servers() = default;
    Servers(const char* text) : texts_{text} {}
    Servers(std::string text) : texts_{std::move(text)} {}
    Servers(std::vector<std::string> texts) : texts_(std::move(texts)) {}
    Servers(std::initializer_list<std::string> texts) : texts_(texts) {}
    [[nodiscard]] const std::vector<std::string>& texts() const noexcept { return texts_; }

private:
    std::vector<std::string> texts_;
};

/// TLS to the proxy: 1.2 or newer; its certificate and the host's name are always checked.
struct Tls {
    /// PEM with the certificates to trust; empty: those of the system.
    std::string ca_file = {};
    /// PEM with the client's certificate chain, and its key; both, or none.
    std::string cert_file = {};
    std::string key_file = {};
    /// The name that the proxy's certificate must have; empty: the host of the address.
    std::string server_name = {};
};

enum class LogLevel { info, warning, error };

/// Where log lines go; empty: warnings and errors go to standard error.
using Logger = std::function<void(LogLevel, std::string_view)>;

/// Told what a consumer does, for histories and metrics. Set what you need; never block. They are
/// called in the consumer's threads, several at a time; what they throw is logged and goes no
/// further.
struct Hooks {
    /// The message goes to a handler.
    std::function<void(const Message&)> handle_start = {};
    /// Its handler ended; called before the next message of its key can begin.
    std::function<void(const Message&, Outcome::Kind)> handle_end = {};
    /// A pull was answered with so many messages.
    std::function<void(std::size_t)> pulled = {};
    /// A settle carried so many verdicts, `not_held` of them on leases that were over. Verdicts
    /// that ride on pulls are not reported.
    std::function<void(std::size_t settled, std::size_t not_held)> settled = {};
    /// The message is with a handler, and may now go to someone else as well.
    std::function<void(const Message&)> lease_lost = {};
    /// A request failed; it will be tried again if the error is retriable.
    std::function<void(const Error&)> error = {};
    /// Opens a span for the handling of a message: what is returned lives until the handler ends.
    /// `Message::trace()` is its parent.
    std::function<std::shared_ptr<void>(const Message&)> span = {};
};

/// Options of a Consumer. All but `servers` and `group` have defaults.
struct ConsumerOptions {
    Servers servers;
    /// Name of the consumer group.
    std::string group;
    /// Topics of the group; empty: all of them.
    std::vector<std::string> topics = {};
    /// Keys handled in parallel; handlers run in so many threads at most.
    int concurrency = 8;
    /// Messages that wait here meanwhile; by default as many as `concurrency`. 0 leaves every
    /// waiting message to other clients.
    std::optional<int> prefetch = {};
    /// Consecutive messages of one order key that may come together, to be handled one after the
    /// other. More makes a busy key faster; at the first that fails those behind it go back.
    /// `prefetch` is then at least twice as many by default.
    int max_run = 1;
    /// Shown to operators; by default host, process and something random.
    std::string client_id = {};
    /// How long an ack waits for the next pull to ride on.
    std::chrono::milliseconds ack_linger{20};
    /// For a connection or an answer; a pull's own wait comes on top. Below the length of a lease.
    std::chrono::milliseconds request_timeout{3'000};
    /// How long handlers may go on after `stop`.
    std::chrono::milliseconds drain_timeout{30'000};
    /// Tells the proxy who is asking; empty: none.
    std::string token = {};
    std::optional<Tls> tls = {};
    Hooks hooks = {};
    Logger logger = {};
};

}  // namespace orderlane
