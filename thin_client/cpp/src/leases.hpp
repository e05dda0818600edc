// The messages a client holds, and which may go to a handler. Pure; O(1) unless noted.
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

/// A proxy that holds leases of this client; modified only by the session.
struct Home {
    explicit Home(std::string text) : address(std::move(text)) {}

    /// host:port; empty if the proxy did not report it.
    const std::string address;
    Verdicts verdicts;
    std::optional<Nanos> extend_at_ns;
    Nanos retry_at_ns = 0;
    int failures = 0;
    /// In flight: one settle, or one extend sent at `asked_ns` for `asked_length_ns`.
    std::optional<Verdicts> settling;
    std::optional<std::vector<LeasePtr>> extending;
    Nanos asked_ns = 0;
    Nanos asked_length_ns = 0;

    [[nodiscard]] bool busy() const noexcept { return settling || extending; }
};
using HomePtr = std::shared_ptr<Home>;

/// Topic, qid with suffix, lease id: unique among live leases.
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

/// One message, and the data needed to settle it.
struct Lease {
    Message message;
    wire::Context context;
    HomePtr home;
    /// Topic and order key: its messages are handled one after the other. Nothing: unordered.
    std::optional<std::string> key;
    Nanos length_ns = 0;
    /// Shared by messages that arrived together and must be handled in sequence.
    std::uint64_t run = 0;
    bool is_open = false;  // with a handler
    bool waits = false;    // behind another message of its key
    std::list<LeasePtr>::iterator place = {};

    [[nodiscard]] Nanos deadline_ns() const noexcept { return message.lease->deadline_ns; }
    /// When a third of its length has passed.
    [[nodiscard]] Nanos extend_at_ns() const noexcept {
        return deadline_ns() - 2 * length_ns / 3;
    }
};

/// All leases of a client: open ones with handlers, ready ones, and chained ones of their keys.
class Leases {
public:
    explicit Leases(std::size_t concurrency) : concurrency_(concurrency) {}

    [[nodiscard]] std::size_t size() const noexcept { return all_.size(); }
    [[nodiscard]] auto begin() const noexcept { return all_.begin(); }
    [[nodiscard]] auto end() const noexcept { return all_.end(); }
    [[nodiscard]] std::size_t concurrency() const noexcept { return concurrency_; }
    /// Running handlers; a batch counts once.
    [[nodiscard]] std::size_t open() const noexcept { return open_; }
    /// Leases that wait only for a handler.
    [[nodiscard]] std::size_t ready() const noexcept { return ready_.size(); }
    /// False after it was closed or removed.
    [[nodiscard]] bool holds(const LeasePtr& lease) const;
    /// True if a message of the key is held; false without a key.
    [[nodiscard]] bool has(const std::optional<std::string>& key) const;

    /// Adds a new lease; one that is already held is ignored.
    void add(const LeasePtr& lease);
    /// Opens the next ready lease that has not expired, and those behind it in its run, at most
    /// `max` in all; O(expired leases).
    [[nodiscard]] std::vector<LeasePtr> take(Nanos now, std::size_t max);
    /// Closes an open lease, for a batch the first; the next one of its key becomes ready. Throws
    /// std::logic_error if it is not with a handler.
    LeasePtr close(const Message& message);
    /// Removes and returns the leases behind an open message in its run.
    std::vector<LeasePtr> drop_rest(const Message& message);
    /// Removes a lease that is not open; O(n).
    void drop(const LeasePtr& lease);
    /// Removes and returns all leases that are not open; O(n).
    std::vector<LeasePtr> drop_waiting();

private:
    [[nodiscard]] LeasePtr find(const Message& message) const;
    void forget(const LeasePtr& lease);
    /// Removes the first lease of its key; returns true if the next one is already open.
    bool remove_first(const LeasePtr& lease);

    std::size_t concurrency_;
    std::size_t open_ = 0;
    std::list<LeasePtr> all_;  // in order of arrival
    std::unordered_map<LeaseName, LeasePtr, LeaseNameHash> held_;
    std::deque<LeasePtr> ready_;
    /// Leases behind a ready or open one of their key.
    std::unordered_map<std::string, std::deque<LeasePtr>> chains_;
};

/// Reads the leases of one queue's batch; `runs` counts runs. Throws ProtocolError if a required
/// field is missing.
[[nodiscard]] std::vector<LeasePtr> read_leases(const wire::PullResponse& part,
                                                const HomePtr& home, Nanos sent_ns,
                                                Nanos length_ms, std::uint64_t& runs);

}  // namespace orderlane::detail
