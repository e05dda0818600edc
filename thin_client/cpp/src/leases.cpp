#include "leases.hpp"

#include <orderlane/errors.hpp>

#include <algorithm>
#include <functional>
#include <stdexcept>
#include <utility>

namespace orderlane::detail {

std::size_t LeaseNameHash::operator()(const LeaseName& name) const noexcept {
    const std::hash<std::string> text;
    const auto number = std::hash<std::int64_t>()(name.number) * 0x9E3779B97F4A7C15U;
    return number ^ text(name.queue) ^ (text(name.topic) << 1);
}

LeaseName name_of(const Message& message) {
    return {message.topic, message.queue, message.lease_id};
}

LeasePtr Leases::find(const Message& message) const {
    const auto found = held_.find(name_of(message));
    return found == held_.end() ? nullptr : found->second;
}

bool Leases::holds(const LeasePtr& lease) const { return find(lease->message) == lease; }

bool Leases::has(const std::optional<std::string>& key) const {
    return key && chains_.contains(*key);
}

void Leases::add(const LeasePtr& lease) {
    if (!held_.try_emplace(name_of(lease->message), lease).second) return;
    lease->place = all_.insert(all_.end(), lease);
    if (lease->key) {
        const auto [chain, is_new] = chains_.try_emplace(*lease->key);
        if (!is_new) {
            lease->waits = true;
            chain->second.push_back(lease);
            return;
        }
    }
    ready_.push_back(lease);
}

std::vector<LeasePtr> Leases::take(Nanos now, std::size_t max) {
    std::vector<LeasePtr> taken;
    for (auto left = open_ < concurrency_ ? ready_.size() : 0; left > 0; --left) {
        const LeasePtr lease = ready_.front();
        ready_.pop_front();
        if (lease->deadline_ns() <= now) {
            ready_.push_back(lease);  // a different key each: any order
            continue;
        }
        ++open_;
        lease->is_open = true;
        taken.push_back(lease);
        if (max == 1 || !lease->key) break;
        for (const auto& next : chains_.at(*lease->key)) {
            if (taken.size() == max || next->run != lease->run || next->deadline_ns() <= now) break;
            next->is_open = true;
            taken.push_back(next);
        }
        break;
    }
    return taken;
}

LeasePtr Leases::close(const Message& message) {
    const LeasePtr lease = find(message);
    if (!lease || !lease->is_open || lease->waits) {
        throw std::logic_error(message.topic + "/" + message.queue + " at " +
                               std::to_string(message.offset) + ": not with a handler");
    }
    if (!remove_first(lease)) --open_;
    return lease;
}

std::vector<LeasePtr> Leases::drop_rest(const Message& message) {
    const LeasePtr lease = find(message);
    if (!lease || !lease->key) return {};
    auto& chain = chains_.at(*lease->key);
    std::vector<LeasePtr> rest;
    std::erase_if(chain, [&](const LeasePtr& each) {
        if (each->run != lease->run) return false;
        rest.push_back(each);
        return true;
    });
    for (const auto& each : rest) forget(each);
    return rest;
}

void Leases::drop(const LeasePtr& lease) {
    if (lease->waits) {
        std::erase(chains_.at(*lease->key), lease);
        forget(lease);
    } else {
        std::erase(ready_, lease);
        remove_first(lease);
    }
}

std::vector<LeasePtr> Leases::drop_waiting() {
    std::vector<LeasePtr> waiting;
    std::copy_if(all_.begin(), all_.end(), std::back_inserter(waiting),
                 [](const LeasePtr& each) { return !each->is_open; });
    for (const auto& each : waiting) {
        if (!each->waits && each->key) chains_.erase(*each->key);
        forget(each);
    }
    ready_.clear();
    for (auto& [key, chain] : chains_) {
        std::erase_if(chain, [](const LeasePtr& each) { return !each->is_open; });
    }
    return waiting;
}

void Leases::forget(const LeasePtr& lease) {
    held_.erase(name_of(lease->message));
    all_.erase(lease->place);
}

bool Leases::remove_first(const LeasePtr& lease) {
    forget(lease);
    if (!lease->key) return false;
    const auto chain = chains_.find(*lease->key);
    if (chain->second.empty()) {
        chains_.erase(chain);
        return false;
    }
    const LeasePtr next = chain->second.front();
    chain->second.pop_front();
    next->waits = false;
    if (!next->is_open) ready_.push_back(next);
    return next->is_open;
}

namespace {

template <class T>
std::optional<T> if_set(bool is_set, const T& value) {
    return is_set ? std::optional<T>(value) : std::nullopt;
}

LeasePtr read_lease(const wire::Message& each, const wire::Context& context, Nanos deadline_ns) {
    const auto& has = each.__isset;
    if (!has.leaseId || !has.value || !has.offset) {
        throw ProtocolError("a message of " + context.topic + "/" + context.qid +
                            " has no body, offset or lease");
    }
    auto lease = std::make_shared<Lease>();
    lease->context = context;
    lease->message = Message{
        .topic = context.topic,
        .queue = context.qid,
        .offset = each.offset,
        .body = each.value,
        .key = if_set(has.key, each.key),
        .order_key = if_set(has.orderKey, each.orderKey),
        .tag = if_set(has.tag, each.tag),
        .properties = each.properties,
        .attempt = each.attempt > 0 ? each.attempt : 1,
        .born_at_ms = if_set(has.bornAtMs, each.bornAtMs),
        .message_id = if_set(has.messageId, each.messageId),
        .lease_id = each.leaseId,
        .lease = std::make_shared<LeaseState>(deadline_ns),
    };
    return lease;
}

}  // namespace

std::vector<LeasePtr> read_leases(const wire::PullResponse& part, const HomePtr& home,
                                  Nanos sent_ns, Nanos length_ms, std::uint64_t& runs) {
    std::vector<LeasePtr> leases;
    if (part.messages.empty()) return leases;
    const auto& context = part.context;
    if (part.__isset.leaseMs && part.leaseMs != 0) length_ms = part.leaseMs;
    if (context.topic.empty() || context.qid.empty() || length_ms <= 0) {
        throw ProtocolError(
            "the answer to a pull has messages, but no topic, qid or leaseMs");
    }
    std::unordered_map<std::string, std::uint64_t> run_of;
    leases.reserve(part.messages.size());
    for (const auto& each : part.messages) {
        auto lease = read_lease(each, context, sent_ns + length_ms * ms);
        lease->home = home;
        lease->length_ns = length_ms * ms;
        if (each.__isset.orderKey) {
            lease->key = context.topic + '\0' + each.orderKey;
            const auto [run, is_new] = run_of.try_emplace(each.orderKey, runs + 1);
            if (is_new) ++runs;
            lease->run = run->second;
        } else {
            lease->run = ++runs;
        }
        leases.push_back(std::move(lease));
    }
    return leases;
}

}  // namespace orderlane::detail
