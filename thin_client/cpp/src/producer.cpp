#include <orderlane/producer.hpp>

#include "arguments.hpp"
#include "calls.hpp"
#include "connection.hpp"
#include "delivery.hpp"
#include "forks.hpp"
#include "log.hpp"
#include "proxies.hpp"
#include "session.hpp"
#include "version.hpp"

#include <condition_variable>
#include <mutex>
#include <random>
#include <stdexcept>
#include <thread>
#include <utility>

namespace orderlane {

using detail::Nanos;
namespace wire = gen::producer;

class Producer::Impl {
public:
    explicit Impl(ProducerOptions options)
        : options_(std::move(options)),
          log_(options_.logger),
          proxies_(options_.servers, options_.tls, options_.timeout),
          random_(std::random_device()()),
          forked_([this] { begin_anew(); }) {
        detail::check_text("token", options_.token);
    }

    std::vector<std::string> send(std::span<const Outgoing> messages, Nanos timeout_ns);
    void close();
    [[nodiscard]] Nanos timeout_ns() const noexcept { return proxies_.timeout_ns(); }

private:
    /// A call, from its start to its end. It owns the connection while it is current.
    class Turn {
    public:
        explicit Turn(Impl& impl) : impl_(impl) {
            const std::lock_guard lock(impl.mutex_);
            number_ = impl.order_.enter();
        }
        ~Turn() {
            const std::lock_guard lock(impl_.mutex_);
            impl_.order_.leave(number_, failed_);
            impl_.left_.notify_all();
        }
        /// False: timed out.
        [[nodiscard]] bool wait_until(Nanos deadline_ns) {
            std::unique_lock lock(impl_.mutex_);
            const auto left = std::chrono::nanoseconds(deadline_ns - detail::now_ns());
            return impl_.left_.wait_for(lock, left,
                                        [this] { return impl_.order_.is_turn_of(number_); });
        }
        [[nodiscard]] bool held_back(const std::vector<detail::SendKey>& keys) const {
            const std::lock_guard lock(impl_.mutex_);
            return impl_.order_.held_back(number_, keys);
        }
        void failed(const std::vector<detail::SendKey>& keys) {
            failed_.insert(failed_.end(), keys.begin(), keys.end());
        }

    private:
        Impl& impl_;
        std::uint64_t number_ = 0;
        std::vector<detail::SendKey> failed_;
    };

    /// In a child process: calls in progress belong to threads of the parent.
    void begin_anew() {
        detail::make_anew(mutex_);
        detail::make_anew(left_);
        detail::make_anew(order_);
        detail::abandon(connection_);
    }
    void check_turn(Turn& turn, const std::vector<detail::Delivery>& requests);
    void deliver(detail::Delivery& request);
    std::optional<Nanos> try_once(detail::Delivery& request);
    [[nodiscard]] wire::Result call(const std::vector<const detail::WireMessage*>& messages,
                                    Nanos try_ns);
    [[nodiscard]] wire::Result call_delayed(const detail::WireMessage& message, Nanos try_ns);
    [[nodiscard]] double jitter() { return std::uniform_real_distribution<>(0, 1)(random_); }

    const ProducerOptions options_;
    const detail::Log log_;
    std::mutex mutex_;
    std::condition_variable left_;
    detail::SendOrder order_;  // guarded by the mutex
    // Owned by the current call:
    detail::Proxies proxies_;
    detail::Interrupt interrupt_;
    std::optional<detail::Connection> connection_;
    std::minstd_rand random_;
    detail::ForkHandler forked_;
};

std::vector<std::string> Producer::Impl::send(std::span<const Outgoing> messages,
                                              Nanos timeout_ns) {
    if (messages.empty()) return {};
    const Nanos deadline_ns = detail::now_ns() + timeout_ns;
    detail::Sender sender{.token = options_.token};
    log_.guard([&] { sender.trace = options_.trace ? options_.trace() : TraceContext(); });
    sender.wall_ns = detail::nanos(std::chrono::system_clock::now().time_since_epoch());
    auto requests = detail::deliveries(messages, sender, deadline_ns);
    std::vector<std::string> ids;
    for (const auto& request : requests) {
        for (auto& id : request.ids()) ids.push_back(std::move(id));
    }
    Turn turn(*this);
    std::size_t begun = 0;
    try {
        check_turn(turn, requests);
        for (auto& request : requests) {
            ++begun;
            deliver(request);
        }
    } catch (SendFailed& error) {
        for (std::size_t index = 0; index < requests.size(); ++index) {
            turn.failed(requests[index].keys());
            if (index < std::max<std::size_t>(begun, 1)) continue;
            for (auto& each : requests[index].untried()) error.failures.push_back(std::move(each));
        }
        error.message_ids = std::move(ids);
        throw;
    } catch (...) {  // no memory: some may be stored
        for (const auto& request : requests) turn.failed(request.keys());
        throw;
    }
    return ids;
}

/// Throws SendFailed if the call must not be sent.
void Producer::Impl::check_turn(Turn& turn, const std::vector<detail::Delivery>& requests) {
    const auto& first = requests.front();
    if (!turn.wait_until(first.deadline_ns())) {
        throw first.not_sent("timed out while waiting for earlier sends");
    }
    for (const auto& request : requests) {
        if (turn.held_back(request.keys())) {
            throw first.not_sent("an earlier send of its key failed while this one waited");
        }
    }
}

void Producer::Impl::deliver(detail::Delivery& request) {
    while (const auto pause_ns = try_once(request)) {
        std::this_thread::sleep_for(std::chrono::nanoseconds(*pause_ns));
    }
}

/// Nothing if all is stored, else the wait before the next try. Throws SendFailed.
std::optional<Nanos> Producer::Impl::try_once(detail::Delivery& request) {
    const auto complain = [&](const std::string& why) {
        if (detail::is_news(request.failures())) {
            log_(LogLevel::warning, "send failed, retrying: " + why);
        }
    };
    bool sent = false;
    try {
        const Nanos try_ns = request.try_ns(detail::now_ns());
        if (!connection_ || connection_->stale()) {
            connection_.emplace(proxies_.next(), interrupt_, try_ns);
        }
        sent = true;
        const auto result = call(request.open(), try_ns);
        const auto pause_ns = request.pause_after(result, detail::now_ns(), jitter());
        if (pause_ns) complain(result.msg);
        return pause_ns;
    } catch (const SendFailed&) {
        throw;
    } catch (const Error& error) {
        connection_.reset();
        proxies_.go_on();
        const auto pause_ns = request.pause_after(error, sent, detail::now_ns(), jitter());
        complain(error.what());
        return pause_ns;
    } catch (...) {  // no memory: a late answer must not be read by the next call
        connection_.reset();
        throw;
    }
}

wire::Result Producer::Impl::call(const std::vector<const detail::WireMessage*>& messages,
                                  Nanos try_ns) {
    const auto timeout_ms = try_ns / detail::ms;
    const Nanos timeout_ns = try_ns + 500 * detail::ms;  // time for its own answer
    if (messages.front()->deliver_at_s) return call_delayed(*messages.front(), try_ns);
    if (messages.size() == 1) {
        return connection_->call(detail::SendCall{messages.front()->message, timeout_ms},
                                 timeout_ns);
    }
    std::vector<wire::Message> batch;
    batch.reserve(messages.size());
    for (const auto* each : messages) batch.push_back(each->message);
    return connection_->call(detail::SendBatchCall{batch}, timeout_ns);
}

wire::Result Producer::Impl::call_delayed(const detail::WireMessage& each, Nanos try_ns) {
    constexpr int add = 1, once = 2;
    const auto& from = each.message;
    wire::DelayMessage message;
    message.__set_topic(from.topic);
    message.__set_body(from.body);
    message.__set_tags(from.tags);
    message.__set_action(add);
    message.__set_timestamp(*each.deliver_at_s);
    message.__set_dmsgtype(once);
    message.__set_uuid(each.id);
    message.__set_version(from.version);
    message.__set_properties(from.properties);
    if (from.__isset.key) message.properties["KEYS"] = from.key;  // as in RocketMQ
    if (from.__isset.token) message.__set_token(from.token);
    const auto answer = connection_->call(detail::SendDelayCall{message, try_ns / detail::ms},
                                          try_ns + 500 * detail::ms);
    wire::Result result;
    result.__set_code(answer.code);
    result.__set_msg(answer.msg);
    return result;
}

void Producer::Impl::close() {
    Turn turn(*this);
    if (turn.wait_until(detail::now_ns() + proxies_.timeout_ns())) connection_.reset();
}

Producer::Producer(ProducerOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
Producer::Producer(Producer&&) noexcept = default;
Producer& Producer::operator=(Producer&&) noexcept = default;
Producer::~Producer() = default;

std::string Producer::send(const Outgoing& message,
                           std::optional<std::chrono::milliseconds> timeout) {
    return send_batch(std::span(&message, 1), timeout).front();
}

std::vector<std::string> Producer::send_batch(std::span<const Outgoing> messages,
                                              std::optional<std::chrono::milliseconds> timeout) {
    if (timeout) detail::check_length("timeout", *timeout, 1);
    return impl_->send(messages, timeout ? detail::nanos(*timeout) : impl_->timeout_ns());
}

void Producer::close() { impl_->close(); }

}  // namespace orderlane
