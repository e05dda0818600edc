#include "session.hpp"

#include <algorithm>
#include <set>
#include <tuple>

namespace orderlane::detail {
namespace {

/// Limits of a pull's wait. It waits for a quarter of the lease, so that its messages have most of
/// their lease left (S4), and for the first linger before the first lease.
constexpr Nanos min_linger_ns = 20 * ms, first_linger_ns = 1'000 * ms, max_linger_ns = 10'000 * ms;
/// Pause after an empty answer that came before the pull's wait was over: the proxy is shutting
/// down.
constexpr Nanos early_pause_ns = 50 * ms;
/// A proxy with messages answers a pull within this; without messages it lets the pull wait.
constexpr Nanos answer_due_ns = 3 * ms;
constexpr Nanos first_backoff_ns = 50 * ms, max_backoff_ns = 5'000 * ms;

}  // namespace

Nanos backoff_ns(int failures, double jitter) {
    const auto longest = std::min(first_backoff_ns << std::min(failures - 1, 10), max_backoff_ns);
    return static_cast<Nanos>(static_cast<double>(longest) * (0.5 + jitter / 2));
}

bool tries_elsewhere(const Error& error, int failures) {
    const auto* lost = dynamic_cast<const ConnectionLost*>(&error);
    return !(lost != nullptr && lost->broke() && failures == 1);
}

bool is_news(int failures) { return (failures & (failures - 1)) == 0; }

Session::Session(SessionOptions options)
    : options_(std::move(options)),
      leases_(options_.concurrency),
      capacity_(options_.concurrency + options_.prefetch),
      low_water_(std::max<std::size_t>(1, (options_.prefetch + 1) / 2)),
      linger_ns_(first_linger_ns) {}

std::string Session::status() const {
    return options_.group + " open=" + std::to_string(leases_.open()) +
           " ready=" + std::to_string(leases_.ready()) +
           " held=" + std::to_string(leases_.size()) + " pulling=" + (pull_ ? "yes" : "no") +
           " homes=" + std::to_string(homes_.size());
}

// ---- messages and handlers ----------------------------------------------------------------------

std::size_t Session::takeable() const noexcept {
    return std::min(leases_.ready(), leases_.concurrency() - leases_.open());
}

bool Session::flushed() const {
    return !pull_ && std::none_of(homes_.begin(), homes_.end(), [](const auto& entry) {
        return entry.second->busy() || !entry.second->verdicts.empty();
    });
}

std::vector<Message> Session::open_messages() const {
    std::vector<Message> open;
    for (const auto& lease : leases_) {
        if (lease->is_open) open.push_back(lease->message);
    }
    return open;
}

std::vector<Message> Session::take(Nanos now, std::size_t max) {
    std::vector<Message> messages;
    for (const auto& lease : leases_.take(now, max)) messages.push_back(lease->message);
    return messages;
}

void Session::settle(const Message& message, const Outcome& outcome, Nanos now) {
    const auto rest =
        outcome.is_ok() ? std::vector<LeasePtr>() : leases_.drop_rest(message);
    const auto lease = leases_.close(message);
    judge(*lease, outcome, now, !outcome.is_ok() || !leases_.has(lease->key));
    for (const auto& each : rest) judge(*each, Outcome::defer(), now);
}

void Session::settle_batch(std::span<const Message> batch, std::size_t done,
                           const Outcome& outcome, Nanos now) {
    done = std::min(done, batch.size());
    for (const auto& message : batch.first(done)) settle(message, Outcome::ok(), now);
    if (done < batch.size()) {
        settle(batch[done], outcome.is_ok() ? Outcome::defer() : outcome, now);
    }
}

void Session::stop(Nanos now) {
    stopping_ = true;
    for (const auto& lease : leases_.drop_waiting()) judge(*lease, Outcome::defer(), now);
}

void Session::judge(const Lease& lease, const Outcome& outcome, Nanos now, bool hurry) {
    auto& verdicts = lease.home->verdicts;
    verdicts.add(lease.context, lease.message.lease_id, outcome, lease.deadline_ns(), now);
    verdicts.hurry |= hurry;
}

// ---- pulling ------------------------------------------------------------------------------------

std::optional<Nanos> Session::pull_at() const {
    if (stopping_ || pull_ || leases_.ready() >= low_water_ || leases_.size() >= capacity_) {
        return {};
    }
    return pull_retry_at_ns_;
}

wire::PullRequest Session::begin_pull(Nanos now) {
    HomePtr home = pull_home_;
    if (!home) {
        const auto unnamed = homes_.find("");
        if (unnamed != homes_.end()) home = unnamed->second;
    }
    auto [request_id, first_sent_ns] = next_id(now);
    pull_ = Pull{request_id, first_sent_ns, now, linger_ns_};
    if (home) std::swap(pull_->verdicts, home->verdicts);
    pull_->home = home;

    wire::PullRequest request;
    request.__set_groupId(options_.group);
    if (!options_.topics.empty()) request.__set_topics(options_.topics);
    request.__set_maxBatchSize(static_cast<std::int32_t>(capacity_ - leases_.size()));
    request.__set_maxLingerTime(static_cast<std::int32_t>(linger_ns_ / ms));
    request.__set_version(options_.version);
    request.__set_clientId(options_.client_id);
    request.__set_manyQueues(true);
    request.__set_requestId(request_id);
    if (!pull_->verdicts.empty()) request.__set_acks(pull_->verdicts.batches());
    if (options_.max_run > 1) request.__set_maxRun(options_.max_run);
    if (!options_.token.empty()) request.__set_token(options_.token);
    return request;
}

/// The id of the pull that begins now, and when that id was first sent (S9).
std::pair<std::string, Nanos> Session::next_id(Nanos now) {
    const auto failed = std::exchange(failed_pull_, std::nullopt);
    if (failed) {
        const bool over =
            lease_ns_ && now >= failed->first_sent_ns + failed->linger_ns + *lease_ns_;
        if (!over) return {failed->request_id, failed->first_sent_ns};
    }
    return {options_.request_prefix + std::to_string(++pulls_), now};
}

std::vector<LeasePtr> Session::read(const wire::PullResponse& response, const HomePtr& home,
                                    Nanos sent_ns) {
    const Nanos length_ms = response.__isset.leaseMs ? response.leaseMs : 0;
    auto arrived = read_leases(response, home, sent_ns, length_ms, runs_);
    for (const auto& part : response.more) {
        const auto others = read_leases(part, home, sent_ns, length_ms, runs_);
        arrived.insert(arrived.end(), others.begin(), others.end());
    }
    return arrived;
}

std::size_t Session::pull_answered(const wire::PullResponse& response, Nanos now) {
    std::string address = response.home;
    for (const auto& part : response.more) {
        if (address.empty()) address = part.home;
    }
    const auto known = homes_.find(address);
    const HomePtr home = known != homes_.end() ? known->second : std::make_shared<Home>(address);
    const auto arrived = read(response, home, pull_.value().first_sent_ns);
    const auto pull = std::move(*std::exchange(pull_, std::nullopt));
    pull_failures_ = 0;
    if (!arrived.empty()) {
        homes_[address] = pull_home_ = home;
        const auto [shortest, longest] = std::minmax_element(
            arrived.begin(), arrived.end(),
            [](const auto& a, const auto& b) { return a->length_ns < b->length_ns; });
        lease_ns_ = (*longest)->length_ns;
        linger_ns_ = std::clamp((*shortest)->length_ns / 4, min_linger_ns, max_linger_ns);
    } else if (now - pull.sent_ns < pull.linger_ns / 2) {
        pull_retry_at_ns_ = now + early_pause_ns;
    }
    for (const auto& lease : arrived) {
        if (stopping_) {
            judge(*lease, Outcome::defer(), now);
            continue;
        }
        leases_.add(lease);
        home->extend_at_ns =
            std::min(home->extend_at_ns.value_or(lease->extend_at_ns()), lease->extend_at_ns());
    }
    forget_idle_homes();
    return arrived.size();
}

void Session::pull_failed(Nanos now, double jitter) {
    if (pull_) {
        if (pull_->home) pull_->home->verdicts.absorb(std::move(pull_->verdicts));
        failed_pull_ = std::exchange(pull_, std::nullopt);
    }
    pull_home_ = nullptr;  // the next connection may lead elsewhere
    ++pull_failures_;
    pull_retry_at_ns_ = now + backoff_ns(pull_failures_, jitter);
}

// ---- settling and extending ---------------------------------------------------------------------

std::optional<Nanos> Session::control_at(const Home& home) const {
    if (home.busy()) return {};
    const auto flush = flush_at(home);
    if (!home.extend_at_ns && !flush) return {};
    const Nanos due = std::min(home.extend_at_ns.value_or(flush.value_or(0)),
                               flush.value_or(home.extend_at_ns.value_or(0)));
    return std::max(due, home.retry_at_ns);
}

Control Session::begin_control(const HomePtr& home, Nanos now) {
    if (home->extend_at_ns && *home->extend_at_ns <= now) {
        const auto due = plan_extends(*home);  // the lease that set the time may be gone
        if (due && *due <= now) return begin_extend(*home, now);
    }
    const auto flush = flush_at(*home);
    if (!flush || *flush > now) return {};
    home->settling = std::exchange(home->verdicts, Verdicts());
    wire::AckRequest request;
    request.__set_groupId(options_.group);
    request.__set_acks(home->settling->batches());
    request.__set_clientId(options_.client_id);
    if (!options_.token.empty()) request.__set_token(options_.token);
    return request;
}

std::vector<Message> Session::control_answered(const HomePtr& home,
                                               const wire::AckAnswer& answer) {
    const auto extended = std::exchange(home->extending, std::nullopt);
    home->settling.reset();
    home->failures = 0;
    home->retry_at_ns = 0;
    std::vector<Message> lost;
    if (extended) {
        std::set<std::tuple<std::string, std::string, std::int64_t>> refused;
        for (const auto& each : answer.notHeld) {
            refused.emplace(each.context.topic, each.context.qid, each.leaseId);
        }
        for (const auto& lease : *extended) {
            const auto& message = lease->message;
            if (refused.contains({message.topic, message.queue, message.lease_id})) {
                lose(lease, lost);
            } else {
                lease->length_ns = home->asked_length_ns;
                message.lease->deadline_ns = home->asked_ns + lease->length_ns;
            }
        }
        plan_extends(*home);
    }
    forget_idle_homes();
    return lost;
}

std::vector<Message> Session::control_failed(const HomePtr& home, Nanos now, double jitter) {
    if (home->settling) home->verdicts.absorb(std::move(*home->settling));
    home->settling.reset();
    home->extending.reset();
    ++home->failures;
    home->retry_at_ns = now + backoff_ns(home->failures, jitter);
    if (home->verdicts.useful_until_ns <= now) home->verdicts = Verdicts();
    std::vector<Message> lost;
    for (const auto& lease : leases_of(*home)) {
        if (lease->deadline_ns() <= now) lose(lease, lost);
    }
    plan_extends(*home);
    forget_idle_homes();
    return lost;
}

std::optional<Nanos> Session::flush_at(const Home& home) const {
    const auto since = home.verdicts.since_ns;
    if (!since) return {};
    const bool hurry = home.verdicts.hurry && pull_;
    if (stopping_ || (hurry && leases_.ready() == 0)) return since;
    const Nanos last = *since + options_.ack_linger_ns;
    if (!hurry) return last;
    return std::min(last, std::max(*since, pull_->sent_ns + answer_due_ns));
}

wire::ExtendRequest Session::begin_extend(Home& home, Nanos now) {
    home.extending = leases_of(home);
    home.asked_ns = now;
    // With several lengths, use the shortest: the proxy caps a longer one silently.
    home.asked_length_ns = (*std::min_element(home.extending->begin(), home.extending->end(),
                                              [](const auto& a, const auto& b) {
                                                  return a->length_ns < b->length_ns;
                                              }))
                               ->length_ns;
    wire::ExtendRequest request;
    request.__set_groupId(options_.group);
    for (const auto& lease : *home.extending) {
        auto& reference = request.leases.emplace_back();
        reference.__set_context(lease->context);
        reference.__set_leaseId(lease->message.lease_id);
    }
    request.__set_ms(static_cast<std::int32_t>(home.asked_length_ns / ms));
    request.__set_clientId(options_.client_id);
    if (!options_.token.empty()) request.__set_token(options_.token);
    return request;
}

/// The leases to extend at a proxy; O(n).
std::vector<LeasePtr> Session::leases_of(const Home& home) const {
    std::vector<LeasePtr> found;
    for (const auto& lease : leases_) {
        if (lease->home.get() == &home && !lease->message.lease->lost) found.push_back(lease);
    }
    return found;
}

std::optional<Nanos> Session::plan_extends(Home& home) {
    home.extend_at_ns.reset();
    for (const auto& lease : leases_of(home)) {
        home.extend_at_ns =
            std::min(home.extend_at_ns.value_or(lease->extend_at_ns()), lease->extend_at_ns());
    }
    return home.extend_at_ns;
}

void Session::lose(const LeasePtr& lease, std::vector<Message>& lost) {
    if (!leases_.holds(lease)) return;
    if (lease->is_open) {
        lease->message.lease->lost = true;
        lost.push_back(lease->message);
    } else {
        leases_.drop(lease);
    }
}

void Session::forget_idle_homes() {
    if (homes_.size() < 2) return;
    std::set<const Home*> needed{pull_home_.get(), pull_ ? pull_->home.get() : nullptr};
    for (const auto& lease : leases_) needed.insert(lease->home.get());
    std::erase_if(homes_, [&](const auto& entry) {
        const auto& [address, home] = entry;
        return !needed.contains(home.get()) && !home->busy() && home->verdicts.empty();
    });
}

}  // namespace orderlane::detail
