// Log lines, and hooks whose failures are contained. Thread-safe.
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

    /// Calls a hook, if it is set; exceptions are logged and otherwise ignored.
    template <class Hook, class... Arguments>
    void tell(const Hook& hook, const Arguments&... arguments) const noexcept {
        if (hook) guard([&] { hook(arguments...); });
    }

    /// Calls the application's code; exceptions are logged and otherwise ignored.
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

/// `std::runtime_error: no` for a standard exception, `int` for any other.
[[nodiscard]] std::string describe(const std::exception_ptr& error);

}  // namespace orderlane::detail
