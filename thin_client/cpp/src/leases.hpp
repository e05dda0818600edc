// The messages a client holds: which may go to a handler. Pure; O(1) where nothing else is said.
#pragma once

#include <orderlane/message.hpp>

#include "clock.hpp"
#include "consumer_proxy_types.h"
#include "lease_state.hpp"
#include "verdicts.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace orderlane::detail {

struct Lease;
using LeasePtr = std::shared_ptr<Lease>;

/// One proxy that holds leases of ours; written by the session alone.
struct Home {
    explicit Home(std::string text) : address(std::move(text)) {}

    /// host:port; empty if the proxy did not say.
    const std::string address;
    Verdicts verdicts;
    std::optional<Nanos> extend_at_ns;
    Nanos retry_at_ns = 0;
    int failures = 0;
    /// What is under way: one settle, or one extend asked at `asked_ns` for `asked_length_ns`.
    std::optional<Verdicts> settling;
    std::optional<std::vector<LeasePtr>> extending;
    Nanos asked_ns = 0;
    Nanos asked_length_ns = 0;

    [[nodiscard]] bool busy() const noexcept { return settling || extending; }
};
using HomePtr = std::shared_ptr<Home>;

/// Topic, qid with suffix, lease id: unique among the leases that are alive.
struct LeaseName {
    std::string topic;
    std::string queue;
    std::int64_t number = 0;
    bool operator==(const LeaseName&) const = default;
};

struct LeaseNameHash {
    std::size_t operator()(const LeaseName& name) const noexcept;
};

[[nodiscard]] LeaseName name_of(const Message& message);

/// One message with what its proxy has to be told to settle it.
struct Lease {
    Message message;
    wire::Context context;
    HomePtr home;
    /// Topic and order key: messages of one are handled one after the other. Nothing: no order.
    std::optional<std::string> key;
    Nanos length_ns = 0;
    /// The same for all that came together and have to be handled in sequence.
    std::uint64_t run = 0;
    bool is_open = false;  // with a handler
    bool waits = false;    // behind another of its key
    std::list<LeasePtr>::iterator place = {};

    [[nodiscard]] Nanos deadline_ns() const noexcept { return message.lease->deadline_ns; }
    /// When a third of its length is gone.
    [[nodiscard]] Nanos extend_at_ns() const noexcept {
        return deadline_ns() - 2 * length_ns / 3;
    }
};

/// All leases of a client: open ones with handlers, ready ones, and those behind their key's.
class Leases {
public:
    explicit Leases(std::size_t concurrency) : concurrency_(concurrency) {}

    [[nodiscard]] std::size_t size() const noexcept { return all_.size(); }
    [[nodiscard]] auto begin() const noexcept { return all_.begin(); }
    [[nodiscard]] auto end() const noexcept { return all_.end(); }
    [[nodiscard]] std::size_t concurrency() const noexcept { return concurrency_; }
    /// Handlers at work: a batch counts once.
    [[nodiscard]] std::size_t open() const noexcept { return open_; }
    /// Leases that wait for nothing but a handler.
    [[nodiscard]] std::size_t ready() const noexcept { return ready_.size(); }
    /// False once it was closed or removed.
    [[nodiscard]] bool holds(const LeasePtr& lease) const;
    /// True if a message of the key is here; false without a key.
    [[nodiscard]] bool has(const std::optional<std::string>& key) const;

    /// Takes a new lease in; one that is held already is ignored.
    void add(const LeasePtr& lease);
    /// Opens the next ready lease that has not run out, and those of its run behind it, `max`
    /// together at most; O(those that have run out).
    [[nodiscard]] std::vector<LeasePtr> take(Nanos now, std::size_t max);
    /// Ends an open lease, of a batch the first; its key's next one gets ready. Throws
    /// std::logic_error if it is not with a handler.
    LeasePtr close(const Message& message);
    /// Forgets and returns what stands behind an open message in its run.
    std::vector<LeasePtr> drop_rest(const Message& message);
    /// Forgets a lease that is not open; O(n).
    void drop(const LeasePtr& lease);
    /// Forgets and returns all that are not open; O(n).
    std::vector<LeasePtr> drop_waiting();

private:
    [[nodiscard]] LeasePtr find(const Message& message) const;
    void forget(const LeasePtr& lease);
    /// Forgets the first of its key; returns true if the next one is open already.
    bool remove_first(const LeasePtr& lease);

    std::size_t concurrency_;
    std::size_t open_ = 0;
    std::list<LeasePtr> all_;  // as they came
    std::unordered_map<LeaseName, LeasePtr, LeaseNameHash> held_;
    std::deque<LeasePtr> ready_;
    /// By key with a lease ready or open: those that stand behind it.
    std::unordered_map<std::string, std::deque<LeasePtr>> chains_;
};

/// Reads the leases of one queue's batch; `runs` counts runs. Throws ProtocolError if it lacks
/// what a lease needs.
[[nodiscard]] std::vector<LeasePtr> read_leases(const wire::PullResponse& part,
                                                const HomePtr& home, Nanos sent_ns,
                                                Nanos length_ms, std::uint64_t& runs);

}  // namespace orderlane::detail
