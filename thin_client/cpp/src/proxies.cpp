#include "proxies.hpp"

#include <stdexcept>
#include <string>

namespace orderlane::detail {

Proxies::Proxies(const Servers& servers, const std::optional<Tls>& tls,
                 std::chrono::milliseconds timeout)
    : addresses_(parse_addresses(servers)),
      tls_(tls ? std::make_unique<const TlsSettings>(*tls) : nullptr),
      timeout_ns_(nanos(timeout)) {
    if (timeout_ns_ <= 0) {
        throw std::invalid_argument("a timeout is " + std::to_string(timeout.count()) +
                                    " ms: expected more than 0");
    }
}

Destination Proxies::next() const {
    const auto count = addresses_.size();
    return {addresses_[tried_ % count], tls_.get(), tried_ / count};
}

}  // namespace orderlane::detail
