// A connection to a proxy, one call at a time.
#pragma once

#include <orderlane/errors.hpp>

#include "address.hpp"
#include "clock.hpp"
#include "stream.hpp"

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

namespace orderlane::detail {

/// After any error but Refused it must not be used again.
class Connection {
public:
    /// Connects. Throws ConnectionLost if that fails or takes longer than the time-out.
    /// `interrupt` has to outlive it.
    Connection(const Destination& to, const Interrupt& interrupt, Nanos timeout_ns);

    /// Sends a call and waits for its answer. Throws ConnectionLost, Refused, ProxyFault or
    /// ProtocolError, within the time-out.
    template <class Call>
    typename Call::Answer call(const Call& call, Nanos timeout_ns) {
        sequence_id_ = (sequence_id_ + 1) & std::numeric_limits<std::int32_t>::max();
        const auto sequence_id = sequence_id_;
        const auto payload = exchange(Call::method, call.encode(sequence_id), timeout_ns);
        return Call::decode(payload, sequence_id, address_.text());
    }

    /// True if the proxy has ended the connection meanwhile.
    [[nodiscard]] bool stale() const noexcept { return stream_.stale(); }
    /// In a child process: lets go of the parent's socket. Nothing but the end may follow.
    void abandon() noexcept { stream_.abandon(); }

private:
    [[nodiscard]] std::string exchange(const char* method, const std::string& frame,
                                       Nanos timeout_ns);

    Address address_;
    Stream stream_;
    /// Begins anywhere: answers of two connections that were mixed up do not fit.
    std::int32_t sequence_id_;
};

/// In a child process: lets go of the parent's connection, if there was one.
void abandon(std::optional<Connection>& connection) noexcept;

/// `3 s` or `0.25 s`, for sentences.
[[nodiscard]] std::string seconds_text(Nanos length);

}  // namespace orderlane::detail
