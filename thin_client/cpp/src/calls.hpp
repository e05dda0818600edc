// The calls of a client: encodes each as a frame of compact Thrift, and decodes its answer. Pure.
//
// A frame is a 4-byte big-endian length and that many bytes. The generated clients are not used:
// they need blocking transports, which have no deadline for a whole answer.
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

/// Limits an answer to 32 MiB: the maximum of the proxy's limits.max_answer_bytes, plus one message
/// inflated to 16 MiB.
inline constexpr std::size_t max_frame_bytes = 33'554'432;

/// The length in a frame's first four bytes. Throws ProtocolError if it is invalid.
[[nodiscard]] std::size_t frame_length(std::span<const char, 4> bytes);

// For each call, `encode` returns the frame to send and `decode` reads the answer's payload; decode
// throws Refused, ProxyFault or ProtocolError, naming the sender.

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
