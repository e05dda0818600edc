// The clock that leases are measured by. It runs while the machine is suspended.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace orderlane::detail {

/// Nanoseconds on the client's clock, or a duration.
using Nanos = std::int64_t;

inline constexpr Nanos ms = 1'000'000;

[[nodiscard]] Nanos now_ns() noexcept;

/// A duration, capped at a century so that sums do not overflow.
template <class Rep, class Period>
[[nodiscard]] constexpr Nanos nanos(std::chrono::duration<Rep, Period> length) {
    using Length = std::chrono::duration<Rep, Period>;
    constexpr auto longest = std::chrono::duration_cast<Length>(std::chrono::hours(876'000));
    length = std::clamp(length, -longest, longest);
    return std::chrono::duration_cast<std::chrono::nanoseconds>(length).count();
}

}  // namespace orderlane::detail
