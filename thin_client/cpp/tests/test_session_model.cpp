// A session with random pulls, ends, losses and failures: each step is checked against the rules. A
// failure names its seed.
#include "answers.hpp"

#include <algorithm>
#include <map>
#include <random>
#include <set>

using namespace answers;
using orderlane::detail::HomePtr;

namespace {

constexpr std::size_t concurrency = 3, prefetch = 3;

/// The test's state of one lease.
struct Given {
    std::string key;
    std::string home;
    Nanos deadline = 0;
    bool taken = false;     // was with a handler
    bool settled = false;   // has a verdict, by a handler, a stop or a failed run
    bool confirmed = false;
    bool lost = false;
    bool in_flight = false;
    Nanos settled_at = 0;
};

class Play {
public:
    explicit Play(unsigned seed) : random_(seed) {}

    void step() {
        switch (pick(9)) {
            case 0: take(1); break;
            case 1: take(3); break;
            case 2: settle(); break;
            case 3: now_ += std::vector<Nanos>{1, 2, 7, 20, 90, 400, 1200}[pick(7)] * ms; break;
            case 4: begin_pull(); break;
            case 5: pick(4) == 0 ? fail_pull() : answer_pull(); break;
            case 6: begin_controls(); break;
            case 7: end_control(pick(4) == 0); break;
            case 8: if (given_.size() > 40 && pick(20) == 0) stop(); break;
        }
        check();
    }

    /// Finally every lease has its verdict confirmed, or is lost.
    void finish() {
        while (!batches_.empty()) settle();
        stop();
        if (pulling_) answer_pull();
        for (int round = 0; round < 3; ++round) {
            while (!controls_.empty()) end_control(false);
            now_ += 10'000 * ms;
            begin_controls();
        }
        CHECK(session_.drained());
        for (const auto& [number, each] : given_) {
            INFO("lease ", number);
            CHECK((each.confirmed || each.lost));
        }
    }

private:
    std::size_t pick(std::size_t count) { return random_() % count; }

    bool held(const Given& each) const { return !each.settled && !each.lost; }

    void take(std::size_t max) {
        const auto batch = session_.take(now_, max);
        if (batch.empty()) return;
        CHECK(batches_.size() < concurrency);           // S7
        CHECK_FALSE(session_.stopping());               // S8
        const auto key = given_.at(batch[0].lease_id).key;
        for (const auto& other : batches_) {
            CHECK((key.empty() || key != given_.at(other[0].lease_id).key));  // S6
        }
        for (const auto& message : batch) {
            auto& each = given_.at(message.lease_id);
            CHECK_FALSE(each.taken);
            CHECK(each.key == key);
            CHECK(each.deadline > now_);  // S4
            CHECK(held(each));
            each.taken = true;
        }
        batches_.push_back(batch);
    }

    void settle() {
        if (batches_.empty()) return;
        const auto at = pick(batches_.size());
        const auto batch = batches_[at];
        batches_.erase(batches_.begin() + static_cast<long>(at));
        const auto done = pick(batch.size() + 1);
        const std::vector<Outcome> outcomes{Outcome::retry(), Outcome::reject("bad"),
                                            Outcome::defer()};
        session_.settle_batch(batch, done, outcomes[pick(3)], now_);
        for (const auto& message : batch) settled(given_.at(message.lease_id));
        if (done == batch.size()) return;
        for (const auto number : runs_.at(batch[0].lease_id)) {  // S10
            auto& each = given_.at(number);
            if (!each.taken && held(each)) settled(each);
        }
    }

    void settled(Given& each) {
        each.settled = true;
        each.settled_at = now_;
    }

    void stop() {
        session_.stop(now_);
        for (auto& [number, each] : given_) {
            if (!each.taken && held(each)) settled(each);
        }
    }

    /// The verdicts of a request: each given, not confirmed, not already in flight.
    std::vector<std::int64_t> carried(const std::vector<wire::AckBatch>& acks,
                                      const std::string& home) {
        std::vector<std::int64_t> numbers;
        for (const auto& batch : acks) {
            numbers.insert(numbers.end(), batch.acked.begin(), batch.acked.end());
            numbers.insert(numbers.end(), batch.released.begin(), batch.released.end());
            for (const auto& nack : batch.nacked) numbers.push_back(nack.leaseId);
        }
        for (const auto number : numbers) {
            auto& each = given_.at(number);
            INFO("lease ", number);
            CHECK(each.settled);
            CHECK_FALSE(each.confirmed);
            CHECK_FALSE(each.in_flight);
            CHECK((home.empty() || each.home == home));
            each.in_flight = true;
        }
        return numbers;
    }

    void returned(const std::vector<std::int64_t>& numbers, bool confirmed) {
        for (const auto number : numbers) {
            given_.at(number).in_flight = false;
            given_.at(number).confirmed = confirmed;
        }
    }

    void begin_pull() {
        const auto at = session_.pull_at();
        if (pulling_ || !at || *at > now_) return;
        const auto request = session_.begin_pull(now_);
        const auto inside = std::count_if(given_.begin(), given_.end(), [&](const auto& entry) {
            return !entry.second.settled && (entry.second.taken || !entry.second.lost);
        });
        CHECK(request.maxBatchSize == static_cast<int>(concurrency + prefetch) - inside);  // S7
        if (request.requestId != request_id_) first_sent_ = now_;
        request_id_ = request.requestId;
        room_ = static_cast<std::size_t>(request.maxBatchSize);
        pulled_verdicts_ = carried(request.acks, "");
        pulling_ = true;
    }

    void answer_pull() {
        if (!pulling_) return;
        pulling_ = false;
        returned(pulled_verdicts_, true);
        const int length_ms = pick(2) == 0 ? 300 : 600;
        wire::PullResponse response = answer({}, {.home = home_, .lease_ms = length_ms});
        std::map<std::string, std::vector<std::int64_t>> runs;
        for (auto count = pick(room_ + 1); count > 0; --count) {
            const auto number = static_cast<std::int64_t>(given_.size() + 1);
            const std::string key = std::vector<std::string>{"x", "x", "y", "z", ""}[pick(5)];
            add(response, number, key);
            given_[number] = {.key = key, .home = home_, .deadline = first_sent_ + length_ms * ms};
            if (session_.stopping()) settled(given_[number]);
            runs[key.empty() ? std::to_string(number) : key].push_back(number);
        }
        for (const auto& [key, numbers] : runs) {
            for (const auto number : numbers) runs_[number] = numbers;
        }
        CHECK(session_.pull_answered(response, now_) == response.messages.size());
    }

    void fail_pull() {
        if (!pulling_) return;
        pulling_ = false;
        session_.pull_failed(now_, 0.0);
        returned(pulled_verdicts_, false);
        home_ = pick(2) == 0 ? "a:1" : "b:2";
    }

    struct Under {
        HomePtr home;
        bool is_extend = false;
        Nanos asked_at = 0;
        Nanos length = 0;
        std::vector<std::int64_t> numbers;
    };

    void begin_controls() {
        for (const auto& [address, home] : session_.homes()) {
            const auto at = session_.control_at(*home);
            if (!at || *at > now_) continue;
            const auto control = session_.begin_control(home, now_);
            if (const auto* settle = std::get_if<wire::AckRequest>(&control)) {
                controls_.push_back({home, false, now_, 0, carried(settle->acks, address)});
                CHECK_FALSE(controls_.back().numbers.empty());
            } else if (const auto* extend = std::get_if<wire::ExtendRequest>(&control)) {
                Under under{home, true, now_, extend->ms * ms, {}};
                for (const auto& each : extend->leases) under.numbers.push_back(each.leaseId);
                std::vector<std::int64_t> expected;  // S5: all, including waiting ones
                for (const auto& [number, each] : given_) {
                    if (each.home == address && held(each)) expected.push_back(number);
                }
                std::sort(under.numbers.begin(), under.numbers.end());
                CHECK(under.numbers == expected);
                controls_.push_back(under);
            }
        }
    }

    void end_control(bool fails) {
        if (controls_.empty()) return;
        const auto under = controls_.back();
        controls_.pop_back();
        std::set<std::int64_t> lost, expected;
        if (fails) {
            for (const auto& each : session_.control_failed(under.home, now_, 0.0)) {
                lost.insert(each.lease_id);
            }
            if (!under.is_extend) returned(under.numbers, false);
            lose_late(*under.home, expected);
        } else {
            const auto answer = refusals(under, expected);
            for (const auto& each : session_.control_answered(under.home, answer)) {
                lost.insert(each.lease_id);
            }
            if (!under.is_extend) returned(under.numbers, true);
        }
        CHECK(lost == expected);
    }

    void lose_late(const orderlane::detail::Home& home, std::set<std::int64_t>& told) {
        bool useful = false;
        for (auto& [number, each] : given_) {
            if (each.home != home.address || each.deadline > now_) continue;
            if (!held(each)) continue;
            each.lost = true;
            if (each.taken) told.insert(number);
        }
        for (const auto& [number, each] : given_) {
            useful |= pending(each, home.address) && each.deadline > now_;
        }
        for (auto& [number, each] : given_) {
            if (!useful && pending(each, home.address)) each.confirmed = true;  // S3: dropped
        }
    }

    static bool pending(const Given& each, const std::string& home) {
        return each.home == home && each.settled && !each.confirmed && !each.in_flight;
    }

    wire::AckAnswer refusals(const Under& under, std::set<std::int64_t>& told) {
        wire::AckAnswer answer;
        for (const auto number : under.is_extend ? under.numbers : std::vector<std::int64_t>()) {
            auto& each = given_.at(number);
            if (pick(5) == 0) {
                auto& reference = answer.notHeld.emplace_back();
                reference.context.__set_topic("t");
                reference.context.__set_qid("q#1");
                reference.__set_leaseId(number);
                if (held(each)) {
                    each.lost = true;
                    if (each.taken) told.insert(number);
                }
            } else if (held(each)) {
                each.deadline = under.asked_at + under.length;
            }
        }
        return answer;
    }

    /// S2, S3: while a verdict waits, its proxy is known and a request is due.
    void check() const {
        for (const auto& [number, each] : given_) {
            if (!pending(each, each.home)) continue;
            INFO("lease ", number);
            REQUIRE(session_.homes().contains(each.home));
            const auto& home = *session_.homes().at(each.home);
            if (home.busy()) continue;
            const auto at = session_.control_at(home);
            REQUIRE(at);
            CHECK(*at <= std::max(each.settled_at + 20 * ms, home.retry_at_ns));
        }
    }

    std::minstd_rand random_;
    Session session_ = session_with(concurrency, prefetch);
    Nanos now_ = start;
    std::map<std::int64_t, Given> given_;
    std::map<std::int64_t, std::vector<std::int64_t>> runs_;
    std::vector<std::vector<Message>> batches_;
    std::string home_ = "a:1";
    bool pulling_ = false;
    std::string request_id_;
    Nanos first_sent_ = 0;
    std::size_t room_ = 0;
    std::vector<std::int64_t> pulled_verdicts_;
    std::vector<Under> controls_;
};

}  // namespace

TEST_CASE("the session keeps its rules in any order of events") {
    for (unsigned seed = 1; seed <= 150; ++seed) {
        INFO("seed ", seed);
        Play play(seed);
        for (int step = 0; step < 300; ++step) play.step();
        play.finish();
    }
}
