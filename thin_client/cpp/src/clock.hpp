// The client's clock. Leases are counted on it, so it goes on while the machine is suspended.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace orderlane::detail {

/// Nanoseconds on the client's clock, or a length of time.
using Nanos = std::int64_t;

inline constexpr Nanos ms = 1'000'000;

[[nodiscard]] Nanos now_ns() noexcept;

/// A length of time, a century at most: who gives more means for ever, and sums of it are still
/// times.
template <class Rep, class Period>
[[nodiscard]] constexpr Nanos nanos(std::chrono::duration<Rep, Period> length) {
    using Length = std::chrono::duration<Rep, Period>;
    constexpr auto longest = std::chrono::duration_cast<Length>(std::chrono::hours(876'000));
    length = std::clamp(length, -longest, longest);
    return std::chrono::duration_cast<std::chrono::nanoseconds>(length).count();
}

}  // namespace orderlane::detail
