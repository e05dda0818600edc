// What can go wrong between a client and a proxy. Ask `retriable()`, never for the class.
#pragma once

#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace orderlane {

/// The kinds of Error, for those who count them.
enum class ErrorKind { connection, refused, fault, protocol, send };

/// Base of the errors below.
class Error : public std::runtime_error {
public:
    /// What kind of error this is.
    [[nodiscard]] ErrorKind kind() const noexcept { return kind_; }
    /// Whether trying again may help.
    [[nodiscard]] bool retriable() const noexcept { return retriable_; }
    /// The proxy's code, if one came: 400, 404, or 500 and above; of sends see `SendFailed`.
    [[nodiscard]] std::optional<int> code() const noexcept { return code_; }

protected:
    Error(ErrorKind kind, const std::string& text, bool retriable, std::optional<int> code = {})
        : std::runtime_error(text), kind_(kind), retriable_(retriable), code_(code) {}

private:
    ErrorKind kind_;
    bool retriable_;
    std::optional<int> code_;
};

/// The connection could not be made, or ended before the answer came. Effect unknown.
class ConnectionLost : public Error {
public:
    /// `broke`: it stood, and ended suddenly; another one to the same proxy may do.
    explicit ConnectionLost(const std::string& text, bool broke = false)
        : Error(ErrorKind::connection, text, true), broke_(broke) {}
    [[nodiscard]] bool broke() const noexcept { return broke_; }

private:
    bool broke_;
};

/// The proxy answered that it failed, or does not know the method.
class ProxyFault : public Error {
public:
    ProxyFault(const std::string& text, bool retriable)
        : Error(ErrorKind::fault, text, retriable) {}
};

/// The answer is not what the contract says: another kind of server, or a bug.
class ProtocolError : public Error {
public:
    explicit ProtocolError(const std::string& text) : Error(ErrorKind::protocol, text, false) {}
};

/// The proxy refused the request; the code is 400, 401, 404, or 500 and above.
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
    /// True if it may be stored nevertheless.
    bool outcome_unknown = false;
};

/// A message, or a part of a batch, was not stored, or nobody knows whether it was.
///
/// `failures` has each message of the call that is not known to be stored; all others of
/// `message_ids` are. Sent again under its id (property UNIQ_KEY), a consumer can tell that it is
/// the same.
class SendFailed : public Error {
public:
    SendFailed(const std::string& text, std::optional<int> code, std::vector<SendFailure> failed,
               std::vector<std::string> ids)
        : Error(ErrorKind::send, text, false, code),
          failures(std::move(failed)),
          message_ids(std::move(ids)) {}

    /// True if some of the failures may be stored nevertheless.
    [[nodiscard]] bool outcome_unknown() const noexcept {
        for (const auto& each : failures) {
            if (each.outcome_unknown) return true;
        }
        return false;
    }

    std::vector<SendFailure> failures;
    /// Of all messages of the call, in their order.
    std::vector<std::string> message_ids;
};

}  // namespace orderlane
