// What a consuming client does next: pure, the same as in the clients of other languages.
//
// The shell around it owns sockets, threads and the clock. It asks `pull_at` and `control_at` when
// something is due, sends what `begin_pull` and `begin_control` return, reports the answer or the
// failure, gives messages from `take` to handlers, and reports their ends to `settle`.
//
// Rules; tests name them:
//
// S1  A verdict rides on the next pull to the proxy that holds its lease.
// S2  A verdict waits for the next pull, `ack_linger_ns` at most. But what it releases may be just
//     what a pull at the proxy waits for: it is sent at once if no message waits here meanwhile,
//     and otherwise once that pull has not been answered for 3 ms. (One whose key goes on here
//     releases nothing.) While some are under way others gather.
// S3  A verdict is sent again until an answer confirms it or its lease cannot be alive, and never
//     after that.
// S4  A lease runs from the moment its pull was *sent*. A message whose lease has run out goes to a
//     handler only after an extend has confirmed it: a stopped proxy's answer may come late.
// S5  With a third of its length gone a lease is extended, whether its message is handled or waits.
// S6  Of one order key at most one message, or one batch, is with a handler, even if the proxy
//     erred.
// S7  At most `concurrency` handlers are at work, and `prefetch` more messages wait here.
// S8  After `stop` no message goes to a handler: what waits, and what still arrives, is given back.
// S9  A pull that failed is repeated under the same id: its answer may be lost, and its proxy gives
//     it again. Its leases run from the *first* sending. Once they must be over a pull has a new
//     id.
// S10 What came together of one order key is a run: at the first of it that does not end well,
//     those behind it are given back with the verdict.
#pragma once

#include <orderlane/errors.hpp>

#include "leases.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace orderlane::detail {

/// How long to wait after so many failures in a row; `jitter` in [0, 1) spreads clients.
[[nodiscard]] Nanos backoff_ns(int failures, double jitter);
/// Whether the next pull goes to another address: not where an answer may be waiting (S9).
[[nodiscard]] bool tries_elsewhere(const Error& error, int failures);
/// True for the 1st, 2nd, 4th, 8th … failure in a row: a long outage is logged less and less.
[[nodiscard]] bool is_news(int failures);

/// What a session is told once.
struct SessionOptions {
    std::string group;
    std::vector<std::string> topics = {};  // empty: any topic of the group
    std::string client_id;
    std::string version;
    std::string token = {};
    /// Handlers at work at most.
    std::size_t concurrency = 8;
    /// Messages that wait here beside theirs at most.
    std::size_t prefetch = 8;
    Nanos ack_linger_ns = 20 * ms;
    /// Consecutive messages of an order key that may come together.
    int max_run = 1;
    /// Makes the ids of pulls unique: processes may share a client id, one after the other.
    std::string request_prefix = {};
};

using Control = std::variant<std::monostate, wire::AckRequest, wire::ExtendRequest>;

/// One consumer's state, guarded by its owner; all times on `now_ns`.
class Session {
public:
    explicit Session(SessionOptions options);

    [[nodiscard]] const SessionOptions& options() const noexcept { return options_; }
    /// Before the first pull, in another process: two that ask under one name would get each
    /// other's answers.
    void rename(std::string client_id, std::string request_prefix) {
        options_.client_id = std::move(client_id);
        options_.request_prefix = std::move(request_prefix);
    }
    /// Proxies that hold leases of ours or wait for verdicts, by address.
    [[nodiscard]] const std::map<std::string, HomePtr>& homes() const noexcept { return homes_; }
    [[nodiscard]] bool stopping() const noexcept { return stopping_; }
    [[nodiscard]] int pull_failures() const noexcept { return pull_failures_; }
    [[nodiscard]] std::string status() const;

    // ---- messages and handlers ----

    /// How often `take` may give something now; too high while leases that ran out wait.
    [[nodiscard]] std::size_t takeable() const noexcept;
    /// Handlers at work.
    [[nodiscard]] std::size_t open() const noexcept { return leases_.open(); }
    /// True if nothing is under way or waits to be sent.
    [[nodiscard]] bool flushed() const;
    /// True if nothing is held either.
    [[nodiscard]] bool drained() const { return leases_.size() == 0 && flushed(); }
    /// The messages with handlers.
    [[nodiscard]] std::vector<Message> open_messages() const;

    /// Gives the next message to a handler, or none (S4, S6, S7); with `max` above 1 consecutive
    /// messages of its run as well.
    [[nodiscard]] std::vector<Message> take(Nanos now, std::size_t max = 1);
    /// A handler is done with a message, of a batch with the first. Throws std::logic_error if it
    /// was not with one.
    void settle(const Message& message, const Outcome& outcome, Nanos now);
    /// A handler is done with a batch: the first `done` are ok, the next one ended with `outcome`,
    /// and those behind it are given back.
    void settle_batch(std::span<const Message> batch, std::size_t done, const Outcome& outcome,
                      Nanos now);
    /// Pull no more, and give back what waits (S8).
    void stop(Nanos now);

    // ---- pulling ----

    /// When the next pull is due; nothing while none is.
    [[nodiscard]] std::optional<Nanos> pull_at() const;
    /// What to send now, verdicts inside (S1). An answer or a failure has to follow.
    [[nodiscard]] wire::PullRequest begin_pull(Nanos now);
    /// Takes the messages in; returns how many came. Throws ProtocolError for a malformed answer;
    /// then nothing has changed, and `pull_failed` has to follow.
    std::size_t pull_answered(const wire::PullResponse& response, Nanos now);
    /// The pull had no answer, or a bad one, or no connection could be made for it; its verdicts
    /// go again (S3).
    void pull_failed(Nanos now, double jitter);

    // ---- settling and extending ----

    /// When a settle or extend is due at a proxy (S2, S5); nothing while none is.
    [[nodiscard]] std::optional<Nanos> control_at(const Home& home) const;
    /// What to send there now, if anything. An answer or a failure has to follow.
    [[nodiscard]] Control begin_control(const HomePtr& home, Nanos now);
    /// The settle or extend was answered; returns messages with handlers whose lease is lost.
    [[nodiscard]] std::vector<Message> control_answered(const HomePtr& home,
                                                        const wire::AckAnswer& answer);
    /// No answer: all goes again (S3). Returns messages with handlers whose lease is lost: its time
    /// is up, and its proxy says nothing.
    [[nodiscard]] std::vector<Message> control_failed(const HomePtr& home, Nanos now,
                                                      double jitter);

private:
    struct Pull {
        std::string request_id;
        Nanos first_sent_ns = 0;  // under this id
        Nanos sent_ns = 0;
        Nanos linger_ns = 0;
        Verdicts verdicts = {};
        HomePtr home = {};  // whose verdicts these are
    };

    void judge(const Lease& lease, const Outcome& outcome, Nanos now, bool hurry = true);
    [[nodiscard]] std::pair<std::string, Nanos> next_id(Nanos now);
    [[nodiscard]] std::vector<LeasePtr> read(const wire::PullResponse& response,
                                             const HomePtr& home, Nanos sent_ns);
    [[nodiscard]] std::optional<Nanos> flush_at(const Home& home) const;
    [[nodiscard]] wire::ExtendRequest begin_extend(Home& home, Nanos now);
    [[nodiscard]] std::vector<LeasePtr> leases_of(const Home& home) const;
    std::optional<Nanos> plan_extends(Home& home);
    void lose(const LeasePtr& lease, std::vector<Message>& lost);
    void forget_idle_homes();

    SessionOptions options_;
    std::map<std::string, HomePtr> homes_;
    bool stopping_ = false;
    Leases leases_;
    std::size_t capacity_;
    std::size_t low_water_;
    std::optional<Pull> pull_;
    std::optional<Pull> failed_pull_;  // to be repeated
    std::uint64_t pulls_ = 0;          // ids given so far
    std::uint64_t runs_ = 0;
    std::optional<Nanos> lease_ns_;  // the longest of those that came last, if any came
    HomePtr pull_home_;              // where the connection for pulls leads, if known
    Nanos pull_retry_at_ns_ = 0;
    int pull_failures_ = 0;  // in a row
    Nanos linger_ns_;
};

}  // namespace orderlane::detail
