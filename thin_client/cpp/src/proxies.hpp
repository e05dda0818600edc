// Where proxies are, and how they are spoken to.
#pragma once

#include <orderlane/options.hpp>

#include "address.hpp"
#include "clock.hpp"
#include "stream.hpp"
#include "tls.hpp"

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

namespace orderlane::detail {

/// The proxies that a client was told of; after a failure the next one is used.
class Proxies {
public:
    /// Throws std::invalid_argument, in a sentence, for what is no address, file or time-out.
    Proxies(const Servers& servers, const std::optional<Tls>& tls,
            std::chrono::milliseconds timeout);

    /// Where to connect now.
    [[nodiscard]] Destination next() const;
    /// Where to connect to reach one proxy.
    [[nodiscard]] Destination at(const Address& address) const { return {address, tls_.get()}; }
    /// Use the next one; of a name with several addresses, in the next round, the next of them.
    void go_on() noexcept { ++tried_; }
    [[nodiscard]] std::size_t size() const noexcept { return addresses_.size(); }
    /// How long a connection, and an answer, may take.
    [[nodiscard]] Nanos timeout_ns() const noexcept { return timeout_ns_; }

private:
    std::vector<Address> addresses_;
    std::unique_ptr<const TlsSettings> tls_;
    Nanos timeout_ns_;
    std::size_t tried_ = 0;
};

}  // namespace orderlane::detail
