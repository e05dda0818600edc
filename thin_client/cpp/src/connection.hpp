// A connection to a proxy, for one call at a time.
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

/// Must not be used after any error except Refused.
class Connection {
public:
    /// Connects. Throws ConnectionLost on failure or timeout. `interrupt` must outlive it.
    Connection(const Destination& to, const Interrupt& interrupt, Nanos timeout_ns);

    /// Sends a call and waits for its answer. Throws ConnectionLost (also on timeout), Refused,
    /// ProxyFault or ProtocolError.
    template <class Call>
    typename Call::Answer call(const Call& call, Nanos timeout_ns) {
        sequence_id_ = (sequence_id_ + 1) & std::numeric_limits<std::int32_t>::max();
        const auto sequence_id = sequence_id_;
        const auto payload = exchange(Call::method, call.encode(sequence_id), timeout_ns);
        return Call::decode(payload, sequence_id, address_.text());
    }

    /// True if the proxy has closed the connection meanwhile.
    [[nodiscard]] bool stale() const noexcept { return stream_.stale(); }
    /// In a child process: releases the parent's socket. Only destruction may follow.
    void abandon() noexcept { stream_.abandon(); }

private:
    [[nodiscard]] std::string exchange(const char* method, const std::string& frame,
                                       Nanos timeout_ns);

    Address address_;
    Stream stream_;
    /// Starts at random, to detect answers mixed up between two connections.
    std::int32_t sequence_id_;
};

/// In a child process: releases the parent's connection, if any.
void abandon(std::optional<Connection>& connection) noexcept;

/// `3 s` or `0.25 s`, for messages.
[[nodiscard]] std::string seconds_text(Nanos length);

}  // namespace orderlane::detail
