// The session's rules, one scenario each; test_session_model.cpp plays random ones.
#include "answers.hpp"

#include <functional>
#include <stdexcept>

using namespace answers;
using orderlane::ConnectionLost;
using orderlane::ProtocolError;
using Ids = std::vector<std::int64_t>;

TEST_CASE("S1: verdicts ride only to their own proxy") {
    auto session = session_with(4, 0);
    const auto first = pulled(session, {1, 2});
    static_cast<void>(session.begin_pull(start));
    session.pull_failed(start, 0.0);
    const auto later = pulled(session, {3}, start + 100 * ms, {.home = "b:2"});
    session.settle(first[0], Outcome::ok(), start + 100 * ms);
    session.settle(later[0], Outcome::ok(), start + 100 * ms);

    const auto pull = session.begin_pull(start + 100 * ms);
    REQUIRE(pull.acks.size() == 1);
    CHECK(pull.acks[0].acked == Ids{3});
    CHECK(settled(session, "a:1", start + 101 * ms).acked == Ids{1});
    CHECK_FALSE(first[1].lease_lost());
}

TEST_CASE("S2: a verdict waits for the linger without a pull") {
    auto session = session_with(1, 3);
    const auto first = pulled(session, {1, 2, 3, 4});
    session.settle(first[0], Outcome::ok(), start);
    CHECK_FALSE(session.pull_at());
    CHECK(session.control_at(*session.homes().at("a:1")) == start + 20 * ms);
    CHECK(nothing_due(session, "a:1", start + 19 * ms));
}

TEST_CASE("S2: a verdict is sent at once if no message waits") {
    auto session = session_with(2, 0);
    const auto both = pulled(session, {1, 2});
    session.settle(both[0], Outcome::ok(), start + ms);
    static_cast<void>(session.begin_pull(start + ms));
    CHECK(nothing_due(session, "a:1", start + 2 * ms));  // it rides
    session.settle(both[1], Outcome::ok(), start + 2 * ms);
    CHECK(session.control_at(*session.homes().at("a:1")) == start + 2 * ms);
}

TEST_CASE("S2: a verdict inside a run releases nothing and does not hurry") {
    auto session = session_with(1, 8);
    const auto first = pulled(session, {1, 2}, start, {.key = "k"});
    static_cast<void>(session.begin_pull(start));  // waits for the key's next messages
    session.settle(first[0], Outcome::ok(), start + ms);
    CHECK(session.control_at(*session.homes().at("a:1")) == start + 21 * ms);
    session.settle(session.take(start).at(0), Outcome::ok(), start + 2 * ms);
    CHECK(session.control_at(*session.homes().at("a:1")) == start + ms);
}

TEST_CASE("S3: a useless verdict is dropped") {
    auto session = session_with();
    const auto message = pulled(session, {1});
    session.settle(message[0], Outcome::ok(), start);
    const auto home = session.homes().at("a:1");
    for (const Nanos now : {start + 1000 * ms, start + 3000 * ms}) {
        static_cast<void>(session.begin_control(home, now));
        CHECK(session.control_failed(home, now, 0.0).empty());
    }
    CHECK_FALSE(session.control_at(*home));
    CHECK(session.drained());
}

TEST_CASE("S4: a message with an expired lease needs an extend") {
    auto session = session_with(1, 1);
    const auto first = pulled(session, {1, 2});
    const Nanos late = start + 3001 * ms;
    session.settle(first[0], Outcome::ok(), late);
    CHECK(session.take(late).empty());

    static_cast<void>(extended(session, "a:1", late));
    CHECK(session.control_answered(session.homes().at("a:1"), {}).empty());
    const auto message = session.take(late);
    REQUIRE(message.size() == 1);
    CHECK(message[0].lease->deadline_ns == late + 3000 * ms);
}

TEST_CASE("S5: leases of several lengths are extended by the shortest") {
    auto session = session_with(4, 0);
    pulled(session, {1}, start, {.lease_ms = 9000});
    const auto brief = pulled(session, {2});
    const auto home = session.homes().at("a:1");
    CHECK(session.control_at(*home) == start + 1000 * ms);
    const auto extend = extended(session, "a:1", start + 1000 * ms);
    CHECK(session.control_answered(home, {}).empty());
    CHECK(extend.ms == 3000);
    CHECK(extend.leases.size() == 2);
    CHECK(brief[0].lease->deadline_ns == start + 4000 * ms);
    CHECK(session.control_at(*home) == start + 2000 * ms);
}

TEST_CASE("S5: a refused extend loses open leases and drops waiting ones") {
    auto session = session_with(1, 2);
    const auto open = pulled(session, {1, 2});
    const auto extend = extended(session, "a:1", start + 1000 * ms);
    wire::AckAnswer refusal;
    refusal.__set_notHeld(extend.leases);
    const auto lost = session.control_answered(session.homes().at("a:1"), refusal);
    REQUIRE(lost.size() == 1);
    CHECK(lost[0].lease_id == 1);
    CHECK(open[0].lease_lost());
    session.settle(open[0], Outcome::ok(), start + 1000 * ms);
    CHECK(session.take(start + 1000 * ms).empty());
}

TEST_CASE("S6: messages of a key wait for each other, those of other keys do not") {
    auto session = session_with(4, 4);
    const auto first = pulled(session, {1, 2}, start, {.key = "k"});
    REQUIRE(first.size() == 1);
    CHECK(pulled(session, {3}).size() == 1);
    session.settle(first[0], Outcome::ok(), start);
    CHECK(session.take(start).at(0).lease_id == 2);
}

TEST_CASE("S7: held messages reduce the capacity") {
    auto session = session_with(2, 4);
    CHECK(session.begin_pull(start).maxBatchSize == 6);
    session.pull_answered(answer({1, 2, 3, 4, 5, 6}), start);
    const auto both = take_all(session, start);
    CHECK(both.size() == 2);
    CHECK_FALSE(session.pull_at());
    session.settle(both[0], Outcome::ok(), start);
    for (int count = 0; count < 3; ++count) {
        session.settle(session.take(start).at(0), Outcome::ok(), start);
    }
    CHECK(session.begin_pull(start).maxBatchSize == 4);
}

TEST_CASE("S8: a stop releases waiting messages and later arrivals") {
    auto session = session_with(1, 2);
    const auto open = pulled(session, {1, 2});
    static_cast<void>(session.begin_pull(start));
    session.stop(start);
    CHECK(session.take(start).empty());
    CHECK(settled(session, "a:1", start).released == Ids{2});
    CHECK(session.control_answered(session.homes().at("a:1"), {}).empty());
    session.pull_answered(answer({3}), start);
    CHECK(settled(session, "a:1", start).released == Ids{3});
    CHECK_FALSE(session.drained());
}

TEST_CASE("S9: a failed pull is repeated and its leases run from the first sending") {
    auto session = session_with(1);
    const auto first = session.begin_pull(start);
    session.pull_failed(start + 10 * ms, 0.0);
    const auto again = session.begin_pull(start + 500 * ms);
    session.pull_answered(answer({1}), start + 510 * ms);
    CHECK(again.requestId == first.requestId);
    CHECK(session.take(start + 510 * ms).at(0).lease->deadline_ns == start + 3000 * ms);
    CHECK(session.begin_pull(start + 520 * ms).requestId != first.requestId);
}

TEST_CASE("S9: a failed pull is not repeated once its leases must have expired") {
    auto session = session_with();
    pulled(session, {1}, start, {.lease_ms = 400});
    const auto first = session.begin_pull(start);
    session.pull_failed(start, 0.0);
    const auto again = session.begin_pull(start + 499 * ms);  // it waits 100 ms, a lease lasts 400
    session.pull_failed(start + 499 * ms, 0.0);
    const auto late = session.begin_pull(start + 500 * ms);
    CHECK(first.requestId == again.requestId);
    CHECK(again.requestId != late.requestId);
}

TEST_CASE("S9: only a broken connection is retried at the same address, and once") {
    using orderlane::detail::tries_elsewhere;
    const ConnectionLost broke("closed", true);
    CHECK_FALSE(tries_elsewhere(broke, 1));
    CHECK(tries_elsewhere(broke, 2));
    CHECK(tries_elsewhere(ConnectionLost("no answer within 3 s"), 1));
    CHECK(tries_elsewhere(ProtocolError("another kind of server"), 1));
}

TEST_CASE("S10: a run is handled in sequence and ends at the first failure") {
    auto session = session_with(4, 8);
    const auto first = pulled(session, {1, 2, 3, 4}, start, {.key = "k"});
    REQUIRE(first.size() == 1);
    session.settle(first[0], Outcome::ok(), start);
    const auto second = session.take(start);
    session.settle(second.at(0), Outcome::retry("no"), start);
    CHECK(session.take(start).empty());
    const auto pull = session.begin_pull(start);
    REQUIRE(pull.acks.size() == 1);
    CHECK(pull.acks[0].acked == Ids{1});
    CHECK(pull.acks[0].nacked.at(0).leaseId == 2);
    CHECK(pull.acks[0].nacked[0].reason == "no");
    CHECK(pull.acks[0].released == Ids{3, 4});
}

TEST_CASE("S10: messages of another answer do not join the run") {
    auto session = session_with(4, 8);
    static_cast<void>(session.begin_pull(start));
    session.pull_answered(answer({1, 2}, {.key = "k"}), start);
    static_cast<void>(session.begin_pull(start));
    session.pull_answered(answer({3}, {.key = "k"}), start);
    session.settle(session.take(start).at(0), Outcome::defer(), start);
    CHECK(session.take(start).at(0).lease_id == 3);
}

TEST_CASE("a batch is the run, up to its limit, and counts as one handler (S6, S7)") {
    auto session = session_with(2, 8);
    static_cast<void>(session.begin_pull(start));
    session.pull_answered(answer({1, 2, 3, 4}, {.key = "k"}), start);
    const auto batch = session.take(start, 3);
    REQUIRE(batch.size() == 3);
    CHECK(session.open() == 1);
    CHECK(session.take(start, 3).empty());

    SUBCASE("all are ok: the next of the key follows") {
        session.settle_batch(batch, 3, Outcome::ok(), start);
        CHECK(session.take(start, 3).at(0).lease_id == 4);
        CHECK(session.begin_pull(start).acks.at(0).acked == Ids{1, 2, 3});
    }
    SUBCASE("the second fails: those behind it are released (S10)") {
        session.settle_batch(batch, 1, Outcome::reject("bad"), start);
        const auto acks = session.begin_pull(start).acks.at(0);
        CHECK(acks.acked == Ids{1});
        CHECK(acks.nacked.at(0).leaseId == 2);
        CHECK(acks.nacked[0].reject);
        CHECK(acks.released == Ids{3, 4});
        CHECK(session.open() == 0);
    }
    SUBCASE("some are not done: they are released") {
        session.settle_batch(batch, 1, Outcome::ok(), start);
        CHECK(session.begin_pull(start).acks.at(0).released == Ids{2, 3, 4});
    }
    SUBCASE("a stop does not affect messages with handlers (S8)") {
        session.stop(start);
        CHECK(settled(session, "a:1", start).released == Ids{4});
        session.settle_batch(batch, 3, Outcome::ok(), start);
        CHECK(session.open() == 0);
    }
}

TEST_CASE("a pull waits a quarter of the lease") {
    auto session = session_with(4);
    pulled(session, {1}, start, {.lease_ms = 2000});
    CHECK(session.begin_pull(start).maxLingerTime == 500);
}

TEST_CASE("an early empty answer pauses pulling") {
    auto session = session_with();
    static_cast<void>(session.begin_pull(start));
    session.pull_answered({}, start + ms);
    REQUIRE(session.pull_at());
    CHECK(*session.pull_at() > start + ms);
    static_cast<void>(session.begin_pull(start + 60 * ms));
    session.pull_answered({}, start + 1060 * ms);
    CHECK(*session.pull_at() <= start + 1060 * ms);  // after a full wait it is due
}

TEST_CASE("backoff grows to a limit and spreads") {
    using orderlane::detail::backoff_ns;
    CHECK(backoff_ns(1, 1.0) == 50 * ms);
    CHECK(backoff_ns(3, 1.0) == 200 * ms);
    CHECK(backoff_ns(8, 1.0) == 5000 * ms);
    CHECK(backoff_ns(100, 1.0) == 5000 * ms);
    CHECK(backoff_ns(1, 0.0) == 25 * ms);
}

TEST_CASE("a malformed answer changes nothing") {
    const std::vector<std::function<void(wire::PullResponse&)>> spoils{
        [](auto& response) { response.context = wire::Context(); },
        [](auto& response) { response.context.qid.clear(); },
        [](auto& response) { response.__isset.leaseMs = false; },
        [](auto& response) { response.leaseMs = -5; },
        [](auto& response) { response.messages[1].__isset.leaseId = false; },
        [](auto& response) { response.messages[1].__isset.value = false; },
        [](auto& response) { response.messages[1].__isset.offset = false; },
    };
    for (const auto& spoil : spoils) {
        auto session = session_with(4);
        const auto message = pulled(session, {9});
        session.settle(message[0], Outcome::ok(), start);
        static_cast<void>(session.begin_pull(start));
        auto response = answer({1, 2});
        spoil(response);
        CHECK_THROWS_AS(session.pull_answered(response, start), ProtocolError);
        session.pull_failed(start, 0.0);
        CHECK(session.take(start).empty());
        CHECK(settled(session, "a:1", start + 20 * ms).acked == Ids{9});
    }
}

TEST_CASE("a repeated message is added once") {
    auto session = session_with(4, 4);
    CHECK(pulled(session, {1, 2}).size() == 2);
    CHECK(pulled(session, {1, 2}).empty());
}

TEST_CASE("settling twice is an error that names the message") {
    auto session = session_with();
    const auto message = pulled(session, {1});
    session.settle(message[0], Outcome::defer(), start);
    CHECK_THROWS_WITH_AS(session.settle(message[0], Outcome::ok(), start),
                         "t/q#1 at 1: not with a handler", std::logic_error);
}

TEST_CASE("status is one line") {
    auto session = session_with();
    pulled(session, {1, 2, 3});
    CHECK(session.status() == "g open=2 ready=1 held=3 pulling=no homes=1");
}

TEST_CASE("a long outage is logged ever less often") {
    std::vector<int> news;
    for (int number = 1; number < 100; ++number) {
        if (orderlane::detail::is_news(number)) news.push_back(number);
    }
    CHECK(news == std::vector<int>{1, 2, 4, 8, 16, 32, 64});
}

TEST_CASE("verdicts carry the outcome, in sendable text") {
    auto session = session_with(4);
    const auto messages = pulled(session, {1, 2, 3, 4});
    session.settle(messages[0], Outcome::retry_after(std::chrono::seconds(2)), start);
    session.settle(messages[1], Outcome::reject("bad"), start);
    session.settle(messages[2], Outcome::retry(std::string(500, 'x') + "\xff"), start);
    session.settle(messages[3], Outcome::retry("\xff!"), start);
    const auto nacked = session.begin_pull(start).acks.at(0).nacked;
    CHECK(nacked.at(0).retryAfterMs == 2000);
    CHECK_FALSE(nacked[0].__isset.reason);
    CHECK(nacked.at(1).reject);
    CHECK(nacked[1].reason == "bad");
    CHECK(nacked.at(2).reason == std::string(200, 'x'));
    CHECK(nacked.at(3).reason == "\xEF\xBF\xBD!");
}

TEST_CASE("every request carries the token") {
    Session session(SessionOptions{.group = "g", .client_id = "c", .version = "v", .token = "key"});
    CHECK(session.begin_pull(start).token == "key");
    session.pull_answered(answer({1}), start);
    const auto message = session.take(start);
    CHECK(extended(session, "a:1", start + 1000 * ms).token == "key");
    CHECK(session.control_answered(session.homes().at("a:1"), {}).empty());
    session.settle(message.at(0), Outcome::ok(), start + 1000 * ms);
    const auto control = session.begin_control(session.homes().at("a:1"), start + 1020 * ms);
    CHECK(std::get<wire::AckRequest>(control).token == "key");
}
