// Verdicts on their way to the proxy that holds the leases, grouped as on the wire. Pure.
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

/// Verdicts on leases of one proxy, in no order; sending them twice has the effect of once.
class Verdicts {
public:
    /// When the oldest came in; nothing if there is none.
    std::optional<Nanos> since_ns;
    /// After this no lease among them can be alive.
    Nanos useful_until_ns = 0;
    /// Whether they may release what a pull waits for.
    bool hurry = false;

    [[nodiscard]] bool empty() const noexcept { return !since_ns; }
    [[nodiscard]] std::size_t size() const noexcept;
    /// Adds the verdict on one lease. The context goes back to the proxy as it came.
    void add(const wire::Context& context, std::int64_t lease_id, const Outcome& outcome,
             Nanos deadline_ns, Nanos now);
    /// What goes on the wire.
    [[nodiscard]] std::vector<wire::AckBatch> batches() const;
    /// Takes those of another in, as after a send that failed.
    void absorb(Verdicts&& other);

private:
    std::map<std::pair<std::string, std::string>, wire::AckBatch> batches_;
};

}  // namespace orderlane::detail
