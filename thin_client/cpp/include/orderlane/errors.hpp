// Failures between a client and a proxy. Check `retriable()` instead of the class.
#pragma once

#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace orderlane {

/// The kinds of Error, for statistics.
enum class ErrorKind { connection, refused, fault, protocol, send };

/// Base of the errors below.
class Error : public std::runtime_error {
public:
    /// The kind of this error.
    [[nodiscard]] ErrorKind kind() const noexcept { return kind_; }
    /// Whether a retry may help.
    [[nodiscard]] bool retriable() const noexcept { return retriable_; }
    /// The proxy's code, if any: 400, 401, 403, 404, or from 500 on; for sends see `SendFailed`.
    [[nodiscard]] std::optional<int> code() const noexcept { return code_; }

protected:
    Error(ErrorKind kind, const std::string& text, bool retriable, std::optional<int> code = {})
        : std::runtime_error(text), kind_(kind), retriable_(retriable), code_(code) {}

private:
    ErrorKind kind_;
    bool retriable_;
    std::optional<int> code_;
};

/// The connection failed, or ended before the answer. The request's effect is unknown.
class ConnectionLost : public Error {
public:
    /// `broke`: an established connection ended suddenly; reconnecting to the same proxy may help.
    explicit ConnectionLost(const std::string& text, bool broke = false)
        : Error(ErrorKind::connection, text, true), broke_(broke) {}
    [[nodiscard]] bool broke() const noexcept { return broke_; }

private:
    bool broke_;
};

/// The proxy failed, or does not implement the method.
class ProxyFault : public Error {
public:
    ProxyFault(const std::string& text, bool retriable)
        : Error(ErrorKind::fault, text, retriable) {}
};

/// The answer violates the protocol: another kind of server, or a bug.
class ProtocolError : public Error {
public:
    explicit ProtocolError(const std::string& text) : Error(ErrorKind::protocol, text, false) {}
};

/// The proxy refused the request; the code is 400, 401, 403, 404, or from 500 on.
class Refused : public Error {
public:
    Refused(int code, const std::string& text)
        : Error(ErrorKind::refused, text, code >= 500, code) {}
};

/// Why one message of a call is not known to be stored.
struct SendFailure {
    std::string message_id;
    std::string reason;
    /// The proxy's code (`Result` in producer_proxy.thrift); nothing if no proxy answered.
    std::optional<int> code;
    /// True if the message may have been stored.
    bool outcome_unknown = false;
};

/// Messages were not stored, or their outcome is unknown.
///
/// `failures` has each message of the call not known to be stored; all others of `message_ids` are
/// stored. Consumers recognize a message sent again under its id (property UNIQ_KEY) as a
/// duplicate.
class SendFailed : public Error {
public:
    SendFailed(const std::string& text, std::optional<int> code, std::vector<SendFailure> failed,
               std::vector<std::string> ids)
        : Error(ErrorKind::send, text, false, code),
          failures(std::move(failed)),
          message_ids(std::move(ids)) {}

    /// True if some of the failed messages may have been stored.
    [[nodiscard]] bool outcome_unknown() const noexcept {
        for (const auto& each : failures) {
            if (each.outcome_unknown) return true;
        }
        return false;
    }

    std::vector<SendFailure> failures;
    /// The ids of all messages of the call, in order.
    std::vector<std::string> message_ids;
};

}  // namespace orderlane
