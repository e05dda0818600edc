// The client's clock. Leases are counted on it, so it goes on while the machine is suspended.
#pragma once

#include <chrono>
#include <cstdint>

namespace orderlane::detail {

/// Nanoseconds on the client's clock, or a length of time.
using Nanos = std::int64_t;

inline constexpr Nanos ms = 1'000'000;

[[nodiscard]] Nanos now_ns() noexcept;

template <class Rep, class Period>
[[nodiscard]] constexpr Nanos nanos(std::chrono::duration<Rep, Period> length) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(length).count();
}

}  // namespace orderlane::detail
