// Log lines, and hooks that must not break their caller. Thread-safe.
#pragma once

#include <orderlane/options.hpp>

#include <exception>
#include <string>
#include <utility>

namespace orderlane::detail {

class Log {
public:
    explicit Log(Logger logger) : logger_(std::move(logger)) {}
    void operator()(LogLevel level, const std::string& text) const noexcept;

    /// Calls a hook, if it is set; what it throws is logged and goes no further.
    template <class Hook, class... Arguments>
    void tell(const Hook& hook, const Arguments&... arguments) const noexcept {
        if (hook) guard([&] { hook(arguments...); });
    }

    /// Calls the application's code; what it throws is logged and goes no further.
    template <class Call>
    void guard(const Call& call) const noexcept {
        try {
            call();
        } catch (...) {
            hook_failed(std::current_exception());
        }
    }

private:
    void hook_failed(const std::exception_ptr& error) const noexcept;

    Logger logger_;
};

/// `std::runtime_error: no` of a standard exception, `int` of an odd one.
[[nodiscard]] std::string describe(const std::exception_ptr& error);

}  // namespace orderlane::detail
