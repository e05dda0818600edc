// A handler's result for a message.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <utility>

namespace orderlane {

/// The result of a handler, which returns one, throws one, or returns nothing (ok).
///
/// Any other exception means `retry()`; its text is shown to operators.
class Outcome {
public:
    enum class Kind { ok, retry, reject, defer };

    /// Handled: the message is finished.
    [[nodiscard]] static Outcome ok() { return Outcome(Kind::ok); }
    /// Redeliver after the group's next retry interval; the order key waits meanwhile.
    [[nodiscard]] static Outcome retry(std::string reason = {}) {
        return Outcome(Kind::retry, std::move(reason));
    }
    /// Redeliver after this time. Throws std::invalid_argument if it is negative.
    [[nodiscard]] static Outcome retry_after(std::chrono::milliseconds pause);
    /// No retry will help: the group's failure policy applies at once.
    [[nodiscard]] static Outcome reject(std::string reason = {}) {
        return Outcome(Kind::reject, std::move(reason));
    }
    /// Release unhandled, at once, without counting an attempt.
    [[nodiscard]] static Outcome defer() { return Outcome(Kind::defer); }

    [[nodiscard]] Kind kind() const noexcept { return kind_; }
    [[nodiscard]] bool is_ok() const noexcept { return kind_ == Kind::ok; }
    /// The time of `retry_after`.
    [[nodiscard]] std::optional<std::chrono::milliseconds> pause() const noexcept { return pause_; }
    /// Shown to operators; may be empty.
    [[nodiscard]] const std::string& reason() const noexcept { return reason_; }

private:
    explicit Outcome(Kind kind, std::string reason = {})
        : kind_(kind), reason_(std::move(reason)) {}

    Kind kind_;
    std::optional<std::chrono::milliseconds> pause_;
    std::string reason_;
};

/// `ok`, `retry`, `reject` or `defer`.
[[nodiscard]] const char* name_of(Outcome::Kind kind) noexcept;

/// Thrown by `Message::throw_if_stopped`: a handler that lets it pass releases its message.
struct Stopped {};

}  // namespace orderlane
