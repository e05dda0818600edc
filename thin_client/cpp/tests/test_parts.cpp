// The small pure parts.
#include "address.hpp"
#include "calls.hpp"
#include "delivery.hpp"
#include "json_path.hpp"
#include "send_order.hpp"
#include "text.hpp"

#include <orderlane/orderlane.hpp>

#include <doctest/doctest.h>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>

using namespace orderlane::detail;
using orderlane::Outgoing;
using orderlane::SendFailed;

TEST_CASE("common forms of addresses are parsed") {
    CHECK(parse_address("proxy") == Address{"proxy", 9713});
    CHECK(parse_address(" proxy:1 ") == Address{"proxy", 1});
    CHECK(parse_address("[::1]:80").text() == "[::1]:80");
    CHECK(parse_addresses("a:1,b:2").size() == 2);
    CHECK(parse_addresses({"a:1", "b:2,c"}).size() == 3);
    for (const char* wrong : {"", "a:", "a:0", "a:65536", "a:b", "a b:1", "::1", "[::1", "[x]:1",
                              "a:1,", "a:-1"}) {
        INFO(wrong);
        CHECK_THROWS_AS(static_cast<void>(parse_addresses(wrong)), std::invalid_argument);
    }
    CHECK_THROWS_WITH(static_cast<void>(parse_address("a:x")),
                      "'a:x' is not a proxy address: expected host:port, for example proxy:9713");
}

TEST_CASE("text is sent as well-formed UTF-8") {
    CHECK(is_utf8("a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80"));
    for (const char* wrong : {"\xff", "\xC3", "\xC0\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80"}) {
        CHECK_FALSE(is_utf8(wrong));
    }
    CHECK(sendable("ab\xff"
                   "cd", 4) == "ab\xEF\xBF\xBD"
                               "c");
    CHECK(sendable("\xC3\xA9\xC3\xA9", 1) == "\xC3\xA9");
}

TEST_CASE("the key hash agrees with Java's") {
    std::ifstream file(KEY_HASH_VECTORS);
    const auto vectors = nlohmann::json::parse(file);
    CHECK(vectors.size() > 10);
    for (const auto& vector : vectors) {
        const auto key = vector["key"].get<std::string>();
        INFO(key);
        CHECK(orderlane::key_hash(key) == vector["hash"].get<std::int64_t>());
    }
    CHECK_THROWS_AS(static_cast<void>(orderlane::key_hash("\xff")), std::invalid_argument);
}

TEST_CASE("keys match the vectors shared by the proxy and all clients") {
    std::ifstream file(KEY_VECTORS);
    const auto vectors = nlohmann::json::parse(file);
    for (const auto& vector : vectors["keys"]) {
        const auto text = vector["text"].get<std::string>();
        INFO(text);
        CHECK(plain_key(text) == vector["key"].get<std::string>());
        CHECK(orderlane::key_hash(plain_key(text)) == vector["hash"].get<std::int64_t>());
    }
    CHECK(vectors["values"].size() > 100);
    for (const auto& vector : vectors["values"]) {
        const auto body = vector["body"].get<std::string>();
        INFO(body);
        const JsonPath path(vector["path"].get<std::string>());
        if (vector.contains("refused")) {
            CHECK_THROWS_AS(static_cast<void>(path.find(body)), std::invalid_argument);
            continue;
        }
        const auto found = path.find(body);
        REQUIRE(found.has_value() == vector["key"].is_string());
        if (!found) continue;
        CHECK(*found == vector["key"].get<std::string>());
        CHECK(orderlane::key_hash(*found) == vector["hash"].get<std::int64_t>());
    }
}

TEST_CASE("a sharding path reads strings as text and other values as canonical JSON") {
    const std::string body =
        R"({"a": {"b": [{"the name": "x"}, 2.0, 2.5]}, "o": {"z": 1, "a": [true, null]},)"
        R"( "n": null, "big": 18446744073709551615})";
    const auto find = [&](const char* path) { return JsonPath(path).find(body); };
    CHECK(find("$.a.b[0]['the name']") == "x");
    CHECK(find("$[\"a\"].b[1]") == "2");  // as in the proxy: 2 and 2.0 are one key
    CHECK(find("$.a.b[2]") == "2.5");
    CHECK(find("$.o") == R"({"a":[true,null],"z":1})");
    CHECK(find("$.big") == "18446744073709551615");
    for (const char* nowhere : {"$.n", "$.x", "$.a.b[3]", "$.a[0]", "$.a.b.c", "$.a.b[1].c"}) {
        CHECK_FALSE(find(nowhere));
    }
    CHECK_THROWS_AS(static_cast<void>(JsonPath("$.a").find("no")), std::invalid_argument);
    for (const char* wrong : {"", "$", "a", "$.", "$..a", "$.a[*]", "$.a[", "$[01]", "$['a", "$.1",
                              "$[?@.a]", "$['a'b]", "$[-1]"}) {
        INFO(wrong);
        CHECK_THROWS_AS(JsonPath{wrong}, std::invalid_argument);
    }
}

TEST_CASE("a call waiting behind a failed one of its key is not sent") {
    SendOrder order;
    const SendKey key("t", false, 1), other("t", false, 2);
    const auto first = order.enter(), second = order.enter();
    CHECK(order.is_turn_of(first));
    CHECK_FALSE(order.is_turn_of(second));
    order.leave(first, {key});
    CHECK(order.is_turn_of(second));
    CHECK(order.held_back(second, {other, key}));
    CHECK_FALSE(order.held_back(second, {other}));
    const auto later = order.enter();
    CHECK_FALSE(order.held_back(later, {key}));
    order.leave(second, {});
    order.leave(later, {});
    CHECK_FALSE(order.held_back(second, {key}));  // no call waits, so nothing is remembered
}

TEST_CASE("a call that ends while it waits holds back only those behind it") {
    SendOrder order;
    const std::vector<SendKey> key{{"t", false, 1}};
    const auto ahead = order.enter(), ended = order.enter(), behind = order.enter();
    order.leave(ended, key);
    const auto since = order.enter(), also_ended = order.enter(), last = order.enter();
    order.leave(also_ended, key);
    CHECK_FALSE(order.held_back(ahead, key));
    CHECK(order.held_back(behind, key));
    CHECK_FALSE(order.held_back(since, key));
    CHECK(order.held_back(last, key));
    order.leave(ahead, key);
    CHECK(order.held_back(since, key));
}

namespace {

std::vector<Delivery> cut(const std::vector<Outgoing>& messages) {
    return deliveries(messages, {.token = "key", .wall_ns = 1'000'000 * ms}, 10'000 * ms);
}

orderlane::gen::producer::Result result(int code, std::vector<int> each = {}) {
    orderlane::gen::producer::Result result;
    result.__set_code(code);
    result.__set_msg("why");
    for (const int one : each) result.messages.emplace_back().__set_code(one);
    result.__isset.messages = !each.empty();
    return result;
}

}  // namespace

TEST_CASE("the queue is chosen by number, sharding key, path, key, or not at all") {
    const auto one = [](const Outgoing& message) {
        auto made = cut({message});
        return made.front().open().front()->message;
    };
    CHECK(one({.topic = "t", .body = "x", .key = "abc"}).hashId == 96354);
    CHECK(one({.topic = "t", .body = "x", .key = "a", .sharding_key = "abc"}).hashId == 96354);
    const std::string body = R"({"a":"abc"})";
    CHECK(one({.topic = "t", .body = body, .key = "k", .sharding_path = "$.a"}).hashId == 96354);
    CHECK(one({.topic = "t", .body = "{}", .key = "abc", .sharding_path = "$.a"}).hashId == 96354);
    const auto keyless = one({.topic = "t", .body = "x"});
    CHECK_FALSE(keyless.__isset.hashId);
    CHECK(keyless.partitionId == -1);
    CHECK(keyless.token == "key");
    CHECK(one({.topic = "t", .body = "x", .key = "a", .queue = orderlane::Queue::number(3)})
              .partitionId == 3);
    CHECK(one({.topic = "t", .body = "x", .queue = orderlane::Queue::random()}).partitionId == -2);
}

TEST_CASE("invalid messages are refused with an explanation") {
    CHECK_THROWS_WITH(cut({{.topic = "", .body = "x"}}),
                      "a message to '' cannot be sent: its topic is empty");
    for (const Outgoing& wrong : std::vector<Outgoing>{
             {.topic = "t", .body = "x", .key = "\xff"},
             {.topic = "t", .body = "x", .sharding_key = "\xff"},
             {.topic = "t", .body = "x", .properties = {{"a", "\xff"}}},
             {.topic = "t", .body = "x", .properties = {{"\xff", "a"}}},
             {.topic = "t", .body = "x", .queue = orderlane::Queue::number(-7)},
             {.topic = "t", .body = "x", .delay = std::chrono::milliseconds(-1)},
             {.topic = "t", .body = std::string(5'000'000, 'x')},
         }) {
        CHECK_THROWS_AS(cut({wrong}), std::invalid_argument);
    }
    const std::vector<Outgoing> good{{.topic = "t", .body = "x"}};
    const Sender traced{.token = "", .trace = {.traceparent = "\xff"}};
    CHECK_THROWS_WITH(static_cast<void>(deliveries(good, traced, 0)),
                      "a message to 't' cannot be sent: a property is not UTF-8");
}

TEST_CASE("an endless delay is capped") {
    const auto requests =
        cut({{.topic = "t", .body = "x", .delay = std::chrono::milliseconds::max()}});
    CHECK(requests.front().open().front()->deliver_at_s.value() > 1'000'000'000);
}

TEST_CASE("a delay is never shorter than the application asked for") {
    const std::vector<Outgoing> messages = {
        {.topic = "t", .body = "x", .delay = std::chrono::milliseconds(1000)}};
    for (const auto& [wall_ms, at_s] : {std::pair{1'000'000, 1001}, {1'000'001, 1002},
                                        {1'000'999, 1002}}) {
        const auto requests = deliveries(messages, {.token = "", .wall_ns = wall_ms * ms}, 0);
        CHECK(requests.front().open().front()->deliver_at_s == at_s);
    }
}

TEST_CASE("a batch is split into requests; a delayed message is alone") {
    const std::string large(900'000, 'x');
    const Outgoing plain{.topic = "t", .body = large};
    CHECK(cut({plain, plain, plain}).size() == 2);
    const Outgoing delayed{.topic = "t", .body = "x", .delay = std::chrono::milliseconds(1500)};
    const Outgoing quick{.topic = "t", .body = "x"};
    const auto requests = cut({quick, delayed, quick});
    REQUIRE(requests.size() == 3);
    CHECK(requests[1].open().front()->deliver_at_s == 1002);
}

TEST_CASE("stored messages are not resent, and failures are reported per message") {
    auto made = cut({{.topic = "t", .body = "1"}, {.topic = "t", .body = "2", .key = "a"},
                     {.topic = "t", .body = "3"}});
    auto& request = made.front();
    CHECK(request.pause_after(result(10, {0, 10, 70}), 0, 1.0) == 50 * ms);
    CHECK(request.open().size() == 2);
    CHECK(request.keys().size() == 1);
    CHECK(request.pause_after(orderlane::ConnectionLost("gone"), true, 0, 1.0) == 100 * ms);
    try {
        static_cast<void>(request.pause_after(result(11, {0, 11}), 0, 1.0));
        FAIL("nothing was thrown");
    } catch (const SendFailed& error) {
        CHECK(error.code() == 11);
        REQUIRE(error.failures.size() == 1);
        CHECK(error.failures[0].message_id == error.message_ids.at(2));
        CHECK(error.failures[0].outcome_unknown);  // the connection was lost after sending
        CHECK(error.failures[0].code == 11);
    }
}

TEST_CASE("no part of a refused batch is stored") {
    auto made = cut({{.topic = "t", .body = "1"}, {.topic = "t", .body = "2"}});
    try {
        static_cast<void>(made.front().pause_after(result(71), 0, 1.0));
        FAIL("nothing was thrown");
    } catch (const SendFailed& error) {
        CHECK(error.failures.size() == 2);
        CHECK(error.failures[1].code == 71);
        CHECK_FALSE(error.outcome_unknown());
    }
}

TEST_CASE("a send is tried until its deadline") {
    auto made = cut({{.topic = "t", .body = "1"}});
    auto& request = made.front();
    CHECK(request.try_ns(0) == 3'000 * ms);
    CHECK(request.try_ns(9'500 * ms) == 500 * ms);
    const Nanos late = 9'999 * ms;
    CHECK_THROWS_AS(static_cast<void>(request.pause_after(result(15), late, 1.0)), SendFailed);
    auto refused = cut({{.topic = "t", .body = "1"}});
    const orderlane::Refused no(404, "no such topic");
    CHECK_THROWS_AS(static_cast<void>(refused.front().pause_after(no, true, 0, 1.0)), SendFailed);
}

TEST_CASE("invalid answers are protocol errors") {
    using orderlane::ProtocolError;
    const auto length = [](const char (&bytes)[5]) {
        return frame_length(std::span<const char, 4>(bytes, 4));
    };
    CHECK(length("\0\0\1\0") == 256);
    for (const auto& wrong : {"\0\0\0\0", "\xff\xff\xff\xff", "HTTP", "\x02\x00\x00\x01"}) {
        CHECK_THROWS_AS(length(reinterpret_cast<const char(&)[5]>(*wrong)), ProtocolError);
    }
    const auto decode = [](const std::string& payload) {
        return PullCall::decode(payload, 1, "proxy:1");
    };
    CHECK_THROWS_AS(decode("garbage"), ProtocolError);
    CHECK_THROWS_AS(decode(""), ProtocolError);
    orderlane::gen::consumer::PullRequest request;
    request.__set_groupId("g");
    auto payload = PullCall{request}.encode(1).substr(4);
    CHECK_THROWS_WITH_AS(decode(payload), "pull number 1 was answered by message type 1 for 'pull'"
                                          " number 1", ProtocolError);
    // A list that claims 2 billion elements must not cost memory.
    const std::string hostile = std::string("\x82\x41\x01\x04pull", 8) +
                                std::string("\x0c\x00\x29\xfc\xff\xff\xff\xff\x07", 9);
    CHECK_THROWS_AS(decode(hostile), ProtocolError);
}

TEST_CASE("invalid arguments of calls are refused, before they connect") {
    using namespace std::chrono_literals;
    orderlane::Puller puller({.servers = "127.0.0.1:1", .group = "g"});
    CHECK_THROWS_WITH(static_cast<void>(puller.pull(0)),
                      "max_messages is 0: expected 1 to 1000000");
    CHECK_THROWS_WITH(static_cast<void>(puller.pull(1, -1ms)), "wait is -1 ms: expected 0 or more");
    CHECK_THROWS_WITH(puller.extend({}, 0ms), "length is 0 ms: expected at least 1 ms");
    orderlane::Producer producer({.servers = "127.0.0.1:1"});
    for (const auto timeout : {0ms, -1ms}) {
        CHECK_THROWS_AS(producer.send({.topic = "t", .body = "x"}, timeout), std::invalid_argument);
    }
    CHECK_THROWS_AS(orderlane::StopOnSignals(std::vector<orderlane::Consumer*>{nullptr}),
                    std::invalid_argument);
}

TEST_CASE("invalid options are refused with an explanation") {
    const auto refused = [](orderlane::ConsumerOptions options) {
        CHECK_THROWS_AS(orderlane::Consumer{options}, std::invalid_argument);
    };
    refused({.servers = "a:1", .group = ""});
    refused({.servers = "", .group = "g"});
    refused({.servers = static_cast<const char*>(nullptr), .group = "g"});
    refused({.servers = "a:1", .group = "g", .topics = {""}});
    refused({.servers = "a:1", .group = "g", .concurrency = 0});
    refused({.servers = "a:1", .group = "g", .prefetch = -1});
    refused({.servers = "a:1", .group = "g", .prefetch = std::numeric_limits<int>::max()});
    refused({.servers = "a:1", .group = "g", .max_run = 0});
    const orderlane::ConsumerOptions many{.servers = "a:1", .group = "g", .concurrency = 1'000'001};
    CHECK_THROWS_WITH(orderlane::Consumer{many}, "concurrency is 1000001: expected 1 to 1000000");
    refused({.servers = "a:1", .group = "\xff"});
    refused({.servers = "a:1", .group = "g", .request_timeout = std::chrono::milliseconds(0)});
    refused({.servers = "a:1", .group = "g", .tls = orderlane::Tls{.ca_file = "/nowhere.pem"}});
    refused({.servers = "a:1", .group = "g", .tls = orderlane::Tls{.cert_file = "only.pem"}});
    CHECK_THROWS_AS(static_cast<void>(
                        orderlane::Outcome::retry_after(std::chrono::milliseconds(-1))),
                    std::invalid_argument);
    using orderlane::Puller;
    CHECK_THROWS_AS(Puller({.servers = "a:1", .group = "g", .topics = {""}}),
                    std::invalid_argument);
    CHECK_THROWS_WITH(Puller({.servers = "a:1", .group = "g", .topics = {"\xff"}}),
                      "a topic's name is not UTF-8");
    std::set<std::string> ids;
    for (int count = 0; count < 100; ++count) ids.insert(orderlane::new_message_id());
    CHECK(ids.size() == 100);
}
