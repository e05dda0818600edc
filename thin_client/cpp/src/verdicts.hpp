// Verdicts for the proxy that holds their leases, grouped as on the wire. Pure.
#pragma once

#include <orderlane/outcome.hpp>

#include "clock.hpp"
#include "consumer_proxy_types.h"

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace orderlane::detail {

namespace wire = gen::consumer;

/// Verdicts on leases of one proxy, in no order. Sending them is idempotent.
class Verdicts {
public:
    /// When the oldest was added; nothing if empty.
    std::optional<Nanos> since_ns;
    /// After this all their leases have expired.
    Nanos useful_until_ns = 0;
    /// Whether they may release a message that a pull waits for.
    bool hurry = false;

    [[nodiscard]] bool empty() const noexcept { return !since_ns; }
    [[nodiscard]] std::size_t size() const noexcept;
    /// Adds the verdict on one lease. The context is echoed to the proxy unchanged.
    void add(const wire::Context& context, std::int64_t lease_id, const Outcome& outcome,
             Nanos deadline_ns, Nanos now);
    /// The wire form.
    [[nodiscard]] std::vector<wire::AckBatch> batches() const;
    /// Adds the verdicts of a failed request.
    void absorb(Verdicts&& other);

private:
    std::map<std::pair<std::string, std::string>, wire::AckBatch> batches_;
};

}  // namespace orderlane::detail
