#include <orderlane/puller.hpp>

#include "arguments.hpp"
#include "calls.hpp"
#include "connection.hpp"
#include "forks.hpp"
#include "leases.hpp"
#include "proxies.hpp"
#include "session.hpp"
#include "verdicts.hpp"
#include "version.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

namespace orderlane {

using detail::Nanos;
namespace wire = gen::consumer;

namespace {

/// A time in the wire's 32 bits; longer ones are capped.
std::int32_t wire_ms(std::chrono::milliseconds length) {
    constexpr std::int64_t longest = std::numeric_limits<std::int32_t>::max();
    return static_cast<std::int32_t>(std::min<std::int64_t>(length.count(), longest));
}

}  // namespace

class Puller::Impl {
public:
    explicit Impl(PullerOptions options)
        : options_(std::move(options)),
          proxies_(options_.servers, options_.tls, options_.request_timeout),
          forked_([this] { detail::abandon(connection_); }) {
        detail::check_reader(options_.group, options_.topics, options_.client_id, options_.token);
        if (options_.client_id.empty()) options_.client_id = detail::default_client_id();
    }

    [[nodiscard]] std::vector<Message> pull(int max_messages, std::chrono::milliseconds wait);
    bool settle(const Message& message, const Outcome& outcome);
    bool extend(const Message& message, std::chrono::milliseconds length);
    void close() { connection_.reset(); }

private:
    template <class Call>
    typename Call::Answer call(const Call& call, Nanos wait_ns);
    void connect();
    [[nodiscard]] wire::Context context_of(const Message& message) const;
    /// Sets the client's fields of a request.
    template <class Request>
    void sign(Request& request) const {
        request.__set_groupId(options_.group);
        request.__set_clientId(options_.client_id);
        if (!options_.token.empty()) request.__set_token(options_.token);
    }

    PullerOptions options_;
    detail::Proxies proxies_;
    int failures_ = 0;  // consecutive failures of pulls
    detail::Interrupt interrupt_;
    std::optional<detail::Connection> connection_;
    detail::ForkHandler forked_;
};

void Puller::Impl::connect() {
    if (connection_ && !connection_->stale()) return;
    for (auto left = proxies_.size();; --left) {
        try {
            connection_.emplace(proxies_.next(), interrupt_, proxies_.timeout_ns());
            return;
        } catch (const ConnectionLost&) {
            connection_.reset();
            proxies_.go_on();
            if (left == 1) throw;
        }
    }
}

template <class Call>
typename Call::Answer Puller::Impl::call(const Call& call, Nanos wait_ns) {
    try {
        return connection_->call(call, proxies_.timeout_ns() + wait_ns);
    } catch (const Refused&) {
        throw;
    } catch (...) {  // also no memory: its late answer must not be read by the next call
        connection_.reset();
        throw;
    }
}

std::vector<Message> Puller::Impl::pull(int max_messages, std::chrono::milliseconds wait) {
    detail::check_count("max_messages", max_messages, 1);
    detail::check_length("wait", wait, 0);
    wire::PullRequest request;
    sign(request);
    if (!options_.topics.empty()) request.__set_topics(options_.topics);
    request.__set_maxBatchSize(max_messages);
    request.__set_maxLingerTime(wire_ms(wait));
    request.__set_version(detail::client_version);
    request.__set_manyQueues(true);
    connect();
    const Nanos sent_ns = detail::now_ns();
    const auto response = [&] {
        try {
            return call(detail::PullCall{request}, detail::nanos(wait));
        } catch (const Refused&) {
            throw;
        } catch (const Error& error) {
            // Settles and extends do not go elsewhere: other proxies lack the leases.
            if (detail::tries_elsewhere(error, ++failures_)) proxies_.go_on();
            throw;
        }
    }();
    failures_ = 0;
    const auto home = std::make_shared<detail::Home>(response.home);
    const Nanos length_ms = response.__isset.leaseMs ? response.leaseMs : 0;
    std::uint64_t runs = 0;
    std::vector<Message> messages;
    const auto read = [&](const wire::PullResponse& part) {
        for (auto& lease : detail::read_leases(part, home, sent_ns, length_ms, runs)) {
            messages.push_back(std::move(lease->message));
        }
    };
    read(response);
    for (const auto& part : response.more) read(part);
    return messages;
}

bool Puller::Impl::settle(const Message& message, const Outcome& outcome) {
    detail::Verdicts verdicts;
    verdicts.add(context_of(message), message.lease_id, outcome, 0, 0);
    wire::AckRequest request;
    sign(request);
    request.__set_acks(verdicts.batches());
    connect();
    return call(detail::SettleCall{request}, 0).notHeld.empty();
}

bool Puller::Impl::extend(const Message& message, std::chrono::milliseconds length) {
    detail::check_length("length", length, 1);
    wire::LeaseRef reference;
    reference.__set_context(context_of(message));
    reference.__set_leaseId(message.lease_id);
    wire::ExtendRequest request;
    sign(request);
    request.__set_leases({reference});
    request.__set_ms(wire_ms(length));
    connect();
    const Nanos asked_ns = detail::now_ns();
    const bool held = call(detail::ExtendCall{request}, 0).notHeld.empty();
    if (message.lease) {
        if (held) message.lease->deadline_ns = asked_ns + detail::nanos(length);
        message.lease->lost = !held;
    }
    return held;
}

wire::Context Puller::Impl::context_of(const Message& message) const {
    wire::Context context;
    context.__set_groupId(options_.group);
    context.__set_topic(message.topic);
    context.__set_qid(message.queue);
    return context;
}

Puller::Puller(PullerOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
Puller::Puller(Puller&&) noexcept = default;
Puller& Puller::operator=(Puller&&) noexcept = default;
Puller::~Puller() = default;

std::vector<Message> Puller::pull(int max_messages, std::chrono::milliseconds wait) {
    return impl_->pull(max_messages, wait);
}

bool Puller::settle(const Message& message, const Outcome& outcome) {
    return impl_->settle(message, outcome);
}

bool Puller::extend(const Message& message, std::chrono::milliseconds length) {
    return impl_->extend(message, length);
}

void Puller::close() { impl_->close(); }

}  // namespace orderlane
