// A proxy for tests of threads: gives out messages in order by key, and records verdicts.
#pragma once

#include "ConsumerService.h"
#include "ProducerService.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <thrift/protocol/TCompactProtocol.h>
#include <thrift/server/TThreadedServer.h>
#include <thrift/transport/TBufferTransports.h>
#include <thrift/transport/TServerSocket.h>
#include <vector>

namespace fake {

namespace wire = orderlane::gen::consumer;

/// Serves one Thrift service on its own port until destroyed.
class Server {
public:
    explicit Server(const std::shared_ptr<apache::thrift::TProcessor>& processor)
        : socket_(std::make_shared<apache::thrift::transport::TServerSocket>("127.0.0.1", 0)),
          server_(processor, socket_,
                  std::make_shared<apache::thrift::transport::TFramedTransportFactory>(),
                  std::make_shared<apache::thrift::protocol::TCompactProtocolFactory>()) {
        struct Ready : apache::thrift::server::TServerEventHandler {
            void preServe() override {
                const std::lock_guard lock(mutex);
                is_ready = true;
                changed.notify_all();
            }
            std::mutex mutex;
            std::condition_variable changed;
            bool is_ready = false;
        };
        const auto ready = std::make_shared<Ready>();
        server_.setServerEventHandler(ready);
        thread_ = std::thread([this] { server_.serve(); });
        std::unique_lock lock(ready->mutex);
        ready->changed.wait(lock, [&] { return ready->is_ready; });
    }
    ~Server() {
        server_.stop();
        thread_.join();
    }
    [[nodiscard]] std::string address() const {
        return "127.0.0.1:" + std::to_string(socket_->getPort());
    }

private:
    std::shared_ptr<apache::thrift::transport::TServerSocket> socket_;
    apache::thrift::server::TThreadedServer server_;
    std::thread thread_;
};

/// Gives out at most one message, or one run, of each key at a time.
class Messages : public wire::ConsumerServiceNull {
public:
    void put(const std::string& key, int count) {
        const std::lock_guard lock(mutex_);
        for (; count > 0; --count) {
            wire::Message message;
            message.__set_leaseId(++last_);
            message.__set_offset(last_);
            message.__set_value(std::to_string(last_));
            message.__set_orderKey(key);
            waiting_[key].push_back(message);
        }
        changed_.notify_all();
    }

    /// Waits until `count` leases have this outcome; false on timeout.
    bool wait_for(const std::string& outcome, std::size_t count) {
        std::unique_lock lock(mutex_);
        return changed_.wait_for(lock, std::chrono::seconds(30),
                                 [&] { return verdicts_[outcome].size() >= count; });
    }
    std::vector<std::int64_t> with(const std::string& outcome) {
        const std::lock_guard lock(mutex_);
        return verdicts_[outcome];
    }
    std::string last_reason() {
        const std::lock_guard lock(mutex_);
        return reason_;
    }

    void pull(wire::PullResponse& response, const wire::PullRequest& request) override {
        std::unique_lock lock(mutex_);
        apply(request.acks);
        // Shorter than requested: a draining consumer waits for its pull.
        const auto wait = std::chrono::milliseconds(std::min(request.maxLingerTime, 50));
        changed_.wait_for(lock, wait, [&] { return has_ready(); });
        response.context.__set_topic("t");
        response.context.__set_qid("q#1");
        response.__set_leaseMs(30'000);
        const auto run = request.__isset.maxRun ? static_cast<std::size_t>(request.maxRun) : 1;
        for (auto& [key, queue] : waiting_) {
            if (!out_[key].empty()) continue;
            while (!queue.empty() && out_[key].size() < run &&
                   response.messages.size() < static_cast<std::size_t>(request.maxBatchSize)) {
                out_[key].insert(queue.front().leaseId);
                response.messages.push_back(queue.front());
                queue.pop_front();
            }
        }
    }
    void settle(wire::AckAnswer&, const wire::AckRequest& request) override {
        const std::lock_guard lock(mutex_);
        apply(request.acks);
    }
    void extend(wire::AckAnswer&, const wire::ExtendRequest&) override {}

private:
    bool has_ready() {
        return std::any_of(waiting_.begin(), waiting_.end(), [this](const auto& entry) {
            return !entry.second.empty() && out_[entry.first].empty();
        });
    }
    void apply(const std::vector<wire::AckBatch>& acks) {
        for (const auto& batch : acks) {
            for (const auto lease : batch.acked) end(lease, "ok");
            for (const auto lease : batch.released) end(lease, "defer");
            for (const auto& nack : batch.nacked) {
                reason_ = nack.reason;
                end(nack.leaseId, nack.reject ? "reject" : "retry");
            }
        }
        changed_.notify_all();
    }
    void end(std::int64_t lease, const std::string& outcome) {
        for (auto& [key, leases] : out_) leases.erase(lease);
        verdicts_[outcome].push_back(lease);
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    std::int64_t last_ = 0;
    std::map<std::string, std::deque<wire::Message>> waiting_;
    std::map<std::string, std::set<std::int64_t>> out_;
    std::map<std::string, std::vector<std::int64_t>> verdicts_;
    std::string reason_;
};

/// A proxy with messages.
struct Proxy {
    std::shared_ptr<Messages> messages = std::make_shared<Messages>();
    Server server{std::make_shared<wire::ConsumerServiceProcessor>(messages)};
};

}  // namespace fake
