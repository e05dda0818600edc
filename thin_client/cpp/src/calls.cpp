#include "calls.hpp"

#include <orderlane/errors.hpp>

#include "ConsumerService.h"
#include "ProducerService.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <thrift/protocol/TCompactProtocol.h>
#include <thrift/transport/TBufferTransports.h>
#include <type_traits>

namespace orderlane::detail {
namespace {

using apache::thrift::TApplicationException;
using apache::thrift::TConfiguration;
using apache::thrift::protocol::TCompactProtocolT;
using apache::thrift::protocol::TMessageType;
using apache::thrift::transport::TMemoryBuffer;
using Compact = TCompactProtocolT<TMemoryBuffer>;

/// Limits the elements of a list or map, so that a hostile length does not cost memory.
constexpr std::size_t max_container = 1'000'000;

template <class Arguments>
std::string encode(const char* method, const Arguments& arguments, std::int32_t sequence_id) {
    const auto buffer = std::make_shared<TMemoryBuffer>();
    Compact protocol(buffer);
    protocol.writeMessageBegin(method, apache::thrift::protocol::T_CALL, sequence_id);
    arguments.write(&protocol);
    std::uint8_t* payload = nullptr;
    std::uint32_t length = 0;
    buffer->getBuffer(&payload, &length);
    std::string frame;
    frame.reserve(length + 4);
    for (const int shift : {24, 16, 8, 0}) frame += static_cast<char>((length >> shift) & 0xFF);
    frame.append(reinterpret_cast<const char*>(payload), length);
    return frame;
}

void check_name(const char* method, const std::string& name, std::int32_t sequence_id,
                std::int32_t answered_id, TMessageType kind) {
    if (kind == apache::thrift::protocol::T_REPLY && name == method &&
        answered_id == sequence_id) {
        return;
    }
    throw ProtocolError(std::string(method) + " number " + std::to_string(sequence_id) +
                        " was answered by message type " + std::to_string(kind) + " for '" +
                        name + "' number " + std::to_string(answered_id));
}

ProxyFault fault(const char* method, const TApplicationException& error) {
    const bool internal = error.getType() == TApplicationException::INTERNAL_ERROR;
    return ProxyFault("the proxy answered " + std::string(method) + " with a fault: " +
                          error.what(),
                      internal);
}

/// Decodes an answer into a generated result struct.
template <class Result>
Result decode(const char* method, std::string_view payload, std::int32_t sequence_id) {
    // The codec only reads, although its buffer type is not const.
    auto* bytes = reinterpret_cast<std::uint8_t*>(const_cast<char*>(payload.data()));
    const auto length = static_cast<int>(payload.size());
    auto limits = std::make_shared<TConfiguration>(std::max(length, 1), max_frame_bytes);
    const auto buffer = std::make_shared<TMemoryBuffer>(
        bytes, static_cast<std::uint32_t>(length), TMemoryBuffer::OBSERVE, std::move(limits));
    // An element takes at least one byte, so no list is longer than the payload.
    Compact protocol(buffer, length,
                     static_cast<int>(std::min(max_container, payload.size())));
    Result result;
    TApplicationException error;
    std::string name;
    auto kind = apache::thrift::protocol::T_REPLY;
    std::int32_t answered_id = 0;
    try {
        protocol.readMessageBegin(name, kind, answered_id);
        if (kind == apache::thrift::protocol::T_EXCEPTION) {
            error.read(&protocol);
        } else {
            result.read(&protocol);
        }
    } catch (const std::exception& unreadable) {  // from the codec, or bad_alloc
        throw ProtocolError("the answer to " + std::string(method) + " cannot be decoded: " +
                            unreadable.what());
    }
    if (kind == apache::thrift::protocol::T_EXCEPTION) throw fault(method, error);
    check_name(method, name, sequence_id, answered_id, kind);
    return result;
}

template <class Call, class Result>
typename Call::Answer answer(std::string_view payload, std::int32_t sequence_id,
                             const std::string& sender) {
    auto result = decode<Result>(Call::method, payload, sequence_id);
    if constexpr (requires { result.error; }) {
        if (result.__isset.error) {
            throw Refused(result.error.code,
                          sender + " refused " + Call::method + ": " + result.error.message);
        }
    }
    if (!result.__isset.success) {
        throw ProtocolError(sender + " sent an empty answer to " + Call::method);
    }
    if constexpr (requires { result.success.__isset.code; }) {
        if (!result.success.__isset.code) {  // it would read as 0, which means stored
            throw ProtocolError(sender + " answered " + Call::method + " without a code");
        }
    }
    return std::move(result.success);
}

}  // namespace

std::size_t frame_length(std::span<const char, 4> bytes) {
    std::uint32_t length = 0;
    for (const char byte : bytes) length = (length << 8) | static_cast<unsigned char>(byte);
    if (length > 0 && length <= max_frame_bytes) return length;
    char shown[16];
    std::snprintf(shown, sizeof shown, "%08x", length);
    throw ProtocolError(
        "the answer begins with 0x" + std::string(shown) +
        ", which is not a Thrift frame length: is this the Thrift port of an orderlane proxy?");
}

std::string PullCall::encode(std::int32_t sequence_id) const {
    gen::consumer::ConsumerService_pull_pargs arguments;
    arguments.request = &request;
    return detail::encode(method, arguments, sequence_id);
}

PullCall::Answer PullCall::decode(std::string_view payload, std::int32_t sequence_id,
                                  const std::string& sender) {
    return answer<PullCall, gen::consumer::ConsumerService_pull_result>(payload, sequence_id,
                                                                        sender);
}

std::string SettleCall::encode(std::int32_t sequence_id) const {
    gen::consumer::ConsumerService_settle_pargs arguments;
    arguments.request = &request;
    return detail::encode(method, arguments, sequence_id);
}

SettleCall::Answer SettleCall::decode(std::string_view payload, std::int32_t sequence_id,
                                      const std::string& sender) {
    return answer<SettleCall, gen::consumer::ConsumerService_settle_result>(payload, sequence_id,
                                                                            sender);
}

std::string ExtendCall::encode(std::int32_t sequence_id) const {
    gen::consumer::ConsumerService_extend_pargs arguments;
    arguments.request = &request;
    return detail::encode(method, arguments, sequence_id);
}

ExtendCall::Answer ExtendCall::decode(std::string_view payload, std::int32_t sequence_id,
                                      const std::string& sender) {
    return answer<ExtendCall, gen::consumer::ConsumerService_extend_result>(payload, sequence_id,
                                                                            sender);
}

std::string SendCall::encode(std::int32_t sequence_id) const {
    gen::producer::ProducerService_sendSync_pargs arguments;
    arguments.message = &message;
    arguments.timeout = &timeout_ms;
    return detail::encode(method, arguments, sequence_id);
}

SendCall::Answer SendCall::decode(std::string_view payload, std::int32_t sequence_id,
                                  const std::string& sender) {
    return answer<SendCall, gen::producer::ProducerService_sendSync_result>(payload, sequence_id,
                                                                            sender);
}

std::string SendBatchCall::encode(std::int32_t sequence_id) const {
    gen::producer::ProducerService_sendBatchSync_pargs arguments;
    arguments.messages = &messages;
    return detail::encode(method, arguments, sequence_id);
}

SendBatchCall::Answer SendBatchCall::decode(std::string_view payload, std::int32_t sequence_id,
                                            const std::string& sender) {
    return answer<SendBatchCall, gen::producer::ProducerService_sendBatchSync_result>(
        payload, sequence_id, sender);
}

std::string SendDelayCall::encode(std::int32_t sequence_id) const {
    gen::producer::ProducerService_sendDelaySync_pargs arguments;
    arguments.delayMessage = &message;
    arguments.timeout = &timeout_ms;
    return detail::encode(method, arguments, sequence_id);
}

SendDelayCall::Answer SendDelayCall::decode(std::string_view payload, std::int32_t sequence_id,
                                            const std::string& sender) {
    return answer<SendDelayCall, gen::producer::ProducerService_sendDelaySync_result>(
        payload, sequence_id, sender);
}

}  // namespace orderlane::detail
