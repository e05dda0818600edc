// Options of clients.
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

/// Proxy addresses: `host:port` (port 9713 by default, `[::1]:9713` for IPv6), several separated by
/// commas, or a list. When one fails, the next is tried. A name is resolved for each connection,
/// and all its addresses are tried in turn.
class Servers {
public:
    Servers() = default;
    /// Null, as of a variable of the environment that is not set, is refused as an empty text is.
    Servers(const char* text) : texts_{text == nullptr ? "" : text} {}
    Servers(std::string text) : texts_{std::move(text)} {}
    Servers(std::vector<std::string> texts) : texts_(std::move(texts)) {}
    Servers(std::initializer_list<std::string> texts) : texts_(texts) {}
    [[nodiscard]] const std::vector<std::string>& texts() const noexcept { return texts_; }

private:
    std::vector<std::string> texts_;
};

/// TLS to the proxy: 1.2 or newer; its certificate and the host's name are always verified.
struct Tls {
    /// PEM file with the trusted certificates; empty: the system's.
    std::string ca_file = {};
    /// PEM files with the client's certificate chain, and its key; both or neither.
    std::string cert_file = {};
    std::string key_file = {};
    /// The expected name in the proxy's certificate; empty: the host of the address.
    std::string server_name = {};
};

enum class LogLevel { info, warning, error };

/// Receives log lines; empty: warnings and errors go to standard error.
using Logger = std::function<void(LogLevel, std::string_view)>;

/// Callbacks for a consumer's events, for histories and metrics; all are optional. They are called
/// in the consumer's threads, concurrently, and must not block. Exceptions are logged and otherwise
/// ignored.
struct Hooks {
    /// A handler gets the message.
    std::function<void(const Message&)> handle_start = {};
    /// The message's handler ended; called before the next message of its key can start.
    std::function<void(const Message&, Outcome::Kind)> handle_end = {};
    /// A pull was answered with this number of messages.
    std::function<void(std::size_t)> pulled = {};
    /// A settle carried `settled` verdicts, `not_held` of them on expired leases. Verdicts that
    /// ride on pulls are not reported.
    std::function<void(std::size_t settled, std::size_t not_held)> settled = {};
    /// The message is with a handler, and may now be delivered to another client.
    std::function<void(const Message&)> lease_lost = {};
    /// A request failed; it is retried if the error is retriable.
    std::function<void(const Error&)> error = {};
    /// Opens a span for the handling of a message: the returned object lives until the handler
    /// ends. `Message::trace()` is its parent.
    std::function<std::shared_ptr<void>(const Message&)> span = {};
};

/// Options of a Consumer. All but `servers` and `group` have defaults.
struct ConsumerOptions {
    Servers servers;
    /// Name of the consumer group.
    std::string group;
    /// Topics of the group; empty: all of them.
    std::vector<std::string> topics = {};
    /// Number of keys handled in parallel, and maximum number of handler threads.
    int concurrency = 8;
    /// Messages buffered beyond those being handled; 0 leaves them to other clients. Default:
    /// `concurrency`, and with runs at least twice `max_run`.
    std::optional<int> prefetch = {};
    /// Number of consecutive messages of one order key that may arrive together, to be handled in
    /// sequence. More makes a busy key faster. When one fails, those behind it are released.
    int max_run = 1;
    /// Name shown to operators. Default: host, process and a random part.
    std::string client_id = {};
    /// How long an ack waits to ride on the next pull.
    std::chrono::milliseconds ack_linger{20};
    /// Limits the wait for a connection or an answer, beyond a pull's own wait. Keep it below the
    /// lease length.
    std::chrono::milliseconds request_timeout{3'000};
    /// How long handlers may continue after `stop`.
    std::chrono::milliseconds drain_timeout{30'000};
    /// Authenticates the client; empty: none.
    std::string token = {};
    std::optional<Tls> tls = {};
    Hooks hooks = {};
    Logger logger = {};
};

}  // namespace orderlane
