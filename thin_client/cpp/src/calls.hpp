// The calls a client makes: each as a frame of compact Thrift, and how its answer is read. Pure.
//
// A frame is a 4-byte big-endian length and that many bytes. The generated clients are not used:
// they are bound to blocking transports, which know no deadline for a whole answer.
#pragma once

#include "consumer_proxy_types.h"
#include "producer_proxy_types.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace orderlane::detail {

namespace wire_out = gen::producer;

/// Longest answer taken: 32 MiB, for the most that limits.max_answer_bytes of a proxy lets, and one
/// message more, inflated to 16 MiB.
inline constexpr std::size_t max_frame_bytes = 33'554'432;

/// The length that a frame's first four bytes give. Throws ProtocolError if it is out of bounds.
[[nodiscard]] std::size_t frame_length(std::span<const char, 4> bytes);

// Of each call: `encode` gives the frame to send, `decode` reads the answer's payload. It throws
// Refused, ProxyFault or ProtocolError, naming the sender.

struct PullCall {
    using Answer = gen::consumer::PullResponse;
    static constexpr const char* method = "pull";
    const gen::consumer::PullRequest& request;
    [[nodiscard]] std::string encode(std::int32_t sequence_id) const;
    [[nodiscard]] static Answer decode(std::string_view payload, std::int32_t sequence_id,
                                       const std::string& sender);
};

struct SettleCall {
    using Answer = gen::consumer::AckAnswer;
    static constexpr const char* method = "settle";
    const gen::consumer::AckRequest& request;
    [[nodiscard]] std::string encode(std::int32_t sequence_id) const;
    [[nodiscard]] static Answer decode(std::string_view payload, std::int32_t sequence_id,
                                       const std::string& sender);
};

struct ExtendCall {
    using Answer = gen::consumer::AckAnswer;
    static constexpr const char* method = "extend";
    const gen::consumer::ExtendRequest& request;
    [[nodiscard]] std::string encode(std::int32_t sequence_id) const;
    [[nodiscard]] static Answer decode(std::string_view payload, std::int32_t sequence_id,
                                       const std::string& sender);
};

struct SendCall {
    using Answer = wire_out::Result;
    static constexpr const char* method = "sendSync";
    const wire_out::Message& message;
    std::int64_t timeout_ms;
    [[nodiscard]] std::string encode(std::int32_t sequence_id) const;
    [[nodiscard]] static Answer decode(std::string_view payload, std::int32_t sequence_id,
                                       const std::string& sender);
};

struct SendBatchCall {
    using Answer = wire_out::Result;
    static constexpr const char* method = "sendBatchSync";
    const std::vector<wire_out::Message>& messages;
    [[nodiscard]] std::string encode(std::int32_t sequence_id) const;
    [[nodiscard]] static Answer decode(std::string_view payload, std::int32_t sequence_id,
                                       const std::string& sender);
};

struct SendDelayCall {
    using Answer = wire_out::DelayResult;
    static constexpr const char* method = "sendDelaySync";
    const wire_out::DelayMessage& message;
    std::int64_t timeout_ms;
    [[nodiscard]] std::string encode(std::int32_t sequence_id) const;
    [[nodiscard]] static Answer decode(std::string_view payload, std::int32_t sequence_id,
                                       const std::string& sender);
};

}  // namespace orderlane::detail
