#include "verdicts.hpp"

#include "text.hpp"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>

namespace orderlane::detail {
namespace {

/// Characters of an exception's text shown to operators.
constexpr std::size_t max_reason = 200;

wire::Nack nack(std::int64_t lease_id, const Outcome& outcome) {
    wire::Nack nack;
    nack.__set_leaseId(lease_id);
    if (outcome.kind() == Outcome::Kind::reject) nack.__set_reject(true);
    if (outcome.pause()) {
        constexpr std::int64_t longest = std::numeric_limits<std::int32_t>::max();
        const std::int64_t pause = outcome.pause()->count();
        nack.__set_retryAfterMs(static_cast<std::int32_t>(std::min(pause, longest)));
    }
    if (outcome.kind() == Outcome::Kind::reject || !outcome.reason().empty()) {
        nack.__set_reason(sendable(outcome.reason(), max_reason));
    }
    return nack;
}

template <class T>
void prepend(std::vector<T>& to, std::vector<T>& from) {
    to.insert(to.begin(), std::make_move_iterator(from.begin()),
              std::make_move_iterator(from.end()));
}

}  // namespace

std::size_t Verdicts::size() const noexcept {
    std::size_t count = 0;
    for (const auto& [queue, batch] : batches_) {
        count += batch.acked.size() + batch.nacked.size() + batch.released.size();
    }
    return count;
}

void Verdicts::add(const wire::Context& context, std::int64_t lease_id, const Outcome& outcome,
                   Nanos deadline_ns, Nanos now) {
    auto& batch = batches_[{context.topic, context.qid}];
    if (batch.acked.empty() && batch.nacked.empty() && batch.released.empty()) {
        batch.context = context;
    }
    switch (outcome.kind()) {
        case Outcome::Kind::ok: batch.acked.push_back(lease_id); break;
        case Outcome::Kind::defer: batch.released.push_back(lease_id); break;
        case Outcome::Kind::retry:
        case Outcome::Kind::reject: batch.nacked.push_back(nack(lease_id, outcome)); break;
    }
    if (!since_ns) since_ns = now;
    useful_until_ns = std::max(useful_until_ns, deadline_ns);
}

std::vector<wire::AckBatch> Verdicts::batches() const {
    std::vector<wire::AckBatch> all;
    all.reserve(batches_.size());
    for (const auto& [queue, batch] : batches_) {
        all.push_back(batch);
        all.back().__isset.acked = !batch.acked.empty();
        all.back().__isset.nacked = !batch.nacked.empty();
        all.back().__isset.released = !batch.released.empty();
    }
    return all;
}

void Verdicts::absorb(Verdicts&& other) {
    for (auto& [queue, batch] : other.batches_) {
        const auto [place, is_new] = batches_.try_emplace(queue, std::move(batch));
        if (is_new) continue;
        prepend(place->second.acked, batch.acked);
        prepend(place->second.nacked, batch.nacked);
        prepend(place->second.released, batch.released);
    }
    if (other.since_ns) since_ns = std::min(*other.since_ns, since_ns.value_or(*other.since_ns));
    useful_until_ns = std::max(useful_until_ns, other.useful_until_ns);
    hurry |= other.hurry;
}

}  // namespace orderlane::detail
