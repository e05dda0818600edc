// Decides what a consuming client does next. Pure, and the same in all languages.
//
// The shell around it owns sockets, threads and the clock. It asks `pull_at` and `control_at` when
// something is due, sends what `begin_pull` and `begin_control` return, reports the answer or the
// failure, gives messages from `take` to handlers, and reports their ends to `settle`.
//
// Rules; tests name them:
//
// S1  A verdict rides on the next pull to the proxy that holds its lease.
// S2  A verdict waits for the next pull, `ack_linger_ns` at most. If it may make a message
// available
//     to a pull already waiting at the proxy (no further message of its key is held here), it is
//     sent at once if no message waits here, and otherwise once that pull has been unanswered for
//     3 ms. While a settle is in flight, further verdicts accumulate.
// S3  A verdict is resent until an answer confirms it or its lease must have expired, and never
//     after that.
// S4  A lease runs from the moment its pull was *sent*. After it has expired, its message goes to a
//     handler only if an extend has confirmed it: a stopped proxy's answer may arrive late.
// S5  A lease is extended after a third of its length, whether its message is handled or waits.
// S6  At most one message, or one batch, of an order key is with a handler, even if the proxy errs.
// S7  At most `concurrency` handlers have messages, and at most `prefetch` more messages wait here.
// S8  After `stop` no message goes to a handler: waiting messages and later arrivals are released.
// S9  A failed pull is repeated under the same id: if its answer was lost, the proxy sends it
// again.
//     Its leases run from the *first* sending. Once they must have expired, the next pull has a new
//     id.
// S10 Messages of one order key that arrive together form a run: when one fails, those behind it
//     are released with its verdict.
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

/// The wait after consecutive failures; `jitter` in [0, 1) spreads clients.
[[nodiscard]] Nanos backoff_ns(int failures, double jitter);
/// Whether the next pull goes to another address; not if an answer may be waiting here (S9).
[[nodiscard]] bool tries_elsewhere(const Error& error, int failures);
/// True for the 1st, 2nd, 4th, 8th … consecutive failure: a long outage is logged ever less often.
[[nodiscard]] bool is_news(int failures);

/// Options of a session.
struct SessionOptions {
    std::string group;
    std::vector<std::string> topics = {};  // empty: all topics of the group
    std::string client_id;
    std::string version;
    std::string token = {};
    /// Maximum number of handlers with messages.
    std::size_t concurrency = 8;
    /// Maximum number of messages buffered beyond those.
    std::size_t prefetch = 8;
    Nanos ack_linger_ns = 20 * ms;
    /// Maximum number of consecutive messages of an order key in one delivery.
    int max_run = 1;
    /// Makes pull ids unique: successive processes may share a client id.
    std::string request_prefix = {};
};

using Control = std::variant<std::monostate, wire::AckRequest, wire::ExtendRequest>;

/// The state of one consumer, guarded by its owner; all times on `now_ns`.
class Session {
public:
    explicit Session(SessionOptions options);

    [[nodiscard]] const SessionOptions& options() const noexcept { return options_; }
    /// Sets new names in another process, before the first pull: two clients with one name would
    /// get each other's answers.
    void rename(std::string client_id, std::string request_prefix) {
        options_.client_id = std::move(client_id);
        options_.request_prefix = std::move(request_prefix);
    }
    /// Proxies that hold our leases or await verdicts, by address.
    [[nodiscard]] const std::map<std::string, HomePtr>& homes() const noexcept { return homes_; }
    [[nodiscard]] bool stopping() const noexcept { return stopping_; }
    [[nodiscard]] int pull_failures() const noexcept { return pull_failures_; }
    [[nodiscard]] std::string status() const;

    // ---- messages and handlers ----

    /// How many `take` calls may succeed now; too high while expired leases wait.
    [[nodiscard]] std::size_t takeable() const noexcept;
    /// Running handlers.
    [[nodiscard]] std::size_t open() const noexcept { return leases_.open(); }
    /// True if nothing is in flight or waiting to be sent.
    [[nodiscard]] bool flushed() const;
    /// True if, in addition, no lease is held.
    [[nodiscard]] bool drained() const { return leases_.size() == 0 && flushed(); }
    /// The messages with handlers.
    [[nodiscard]] std::vector<Message> open_messages() const;

    /// Returns the next message for a handler, or none (S4, S6, S7); with `max` above 1, also
    /// consecutive messages of its run.
    [[nodiscard]] std::vector<Message> take(Nanos now, std::size_t max = 1);
    /// Ends the handling of a message, for a batch the first. Throws std::logic_error if no handler
    /// had it.
    void settle(const Message& message, const Outcome& outcome, Nanos now);
    /// Ends the handling of a batch: the first `done` are ok, `outcome` applies to the next one,
    /// and those behind it are released.
    void settle_batch(std::span<const Message> batch, std::size_t done, const Outcome& outcome,
                      Nanos now);
    /// Stops pulling, and releases waiting messages (S8).
    void stop(Nanos now);

    // ---- pulling ----

    /// When the next pull is due; nothing if none is.
    [[nodiscard]] std::optional<Nanos> pull_at() const;
    /// The pull to send now, including verdicts (S1). An answer or a failure must follow.
    [[nodiscard]] wire::PullRequest begin_pull(Nanos now);
    /// Adds the messages; returns their number. Throws ProtocolError for a malformed answer; then
    /// nothing has changed, and `pull_failed` must follow.
    std::size_t pull_answered(const wire::PullResponse& response, Nanos now);
    /// Handles a pull that had no answer, a bad one, or no connection; its verdicts are resent
    /// (S3).
    void pull_failed(Nanos now, double jitter);

    // ---- settling and extending ----

    /// When a settle or extend is due at a proxy (S2, S5); nothing if none is.
    [[nodiscard]] std::optional<Nanos> control_at(const Home& home) const;
    /// The request to send there now, if any. An answer or a failure must follow.
    [[nodiscard]] Control begin_control(const HomePtr& home, Nanos now);
    /// Handles the answer; returns messages with handlers whose lease is lost.
    [[nodiscard]] std::vector<Message> control_answered(const HomePtr& home,
                                                        const wire::AckAnswer& answer);
    /// Handles a missing answer: everything is resent (S3). Returns messages with handlers whose
    /// lease has expired without an answer from the proxy.
    [[nodiscard]] std::vector<Message> control_failed(const HomePtr& home, Nanos now,
                                                      double jitter);

private:
    struct Pull {
        std::string request_id;
        Nanos first_sent_ns = 0;  // under this id
        Nanos sent_ns = 0;
        Nanos linger_ns = 0;
        Verdicts verdicts = {};
        HomePtr home = {};  // home of these verdicts
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
    std::uint64_t pulls_ = 0;          // ids used so far
    std::uint64_t runs_ = 0;
    std::optional<Nanos> lease_ns_;  // the longest of the most recent leases
    HomePtr pull_home_;              // the pull connection's proxy, if known
    Nanos pull_retry_at_ns_ = 0;
    int pull_failures_ = 0;  // consecutive
    Nanos linger_ns_;
};

}  // namespace orderlane::detail
