// The proxies of a client, and how to connect to them.
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

/// The proxies in rotation; after a failure the next one is used.
class Proxies {
public:
    /// Throws std::invalid_argument with an explanation for an invalid address, file or timeout.
    Proxies(const Servers& servers, const std::optional<Tls>& tls,
            std::chrono::milliseconds timeout);

    /// The target of the next connection.
    [[nodiscard]] Destination next() const;
    /// The target for one proxy.
    [[nodiscard]] Destination at(const Address& address) const { return {address, tls_.get()}; }
    /// Advances to the next proxy; with each round, also to the next address of a name.
    void go_on() noexcept { ++tried_; }
    [[nodiscard]] std::size_t size() const noexcept { return addresses_.size(); }
    /// Limit of a connection, and of an answer.
    [[nodiscard]] Nanos timeout_ns() const noexcept { return timeout_ns_; }

private:
    std::vector<Address> addresses_;
    std::unique_ptr<const TlsSettings> tls_;
    Nanos timeout_ns_;
    std::size_t tried_ = 0;
};

}  // namespace orderlane::detail
