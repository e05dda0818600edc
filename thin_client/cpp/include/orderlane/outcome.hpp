// What a handler makes of a message.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <utility>

namespace orderlane {

/// How the handling of a message ended. A handler returns one, throws one, or returns nothing (ok).
///
/// Any other exception that leaves a handler means `retry()`; its text goes to the operator.
class Outcome {
public:
    enum class Kind { ok, retry, reject, defer };

    /// Handled: the message is finished.
    [[nodiscard]] static Outcome ok() { return Outcome(Kind::ok); }
    /// Again, after the group's next retry interval; its order key waits meanwhile.
    [[nodiscard]] static Outcome retry(std::string reason = {}) {
        return Outcome(Kind::retry, std::move(reason));
    }
    /// Again, so long from now. Throws std::invalid_argument for a negative time.
    [[nodiscard]] static Outcome retry_after(std::chrono::milliseconds pause);
    /// No retry will help: the group's failure policy applies at once.
    [[nodiscard]] static Outcome reject(std::string reason = {}) {
        return Outcome(Kind::reject, std::move(reason));
    }
    /// Given back unhandled, at once and without counting an attempt.
    [[nodiscard]] static Outcome defer() { return Outcome(Kind::defer); }

    [[nodiscard]] Kind kind() const noexcept { return kind_; }
    [[nodiscard]] bool is_ok() const noexcept { return kind_ == Kind::ok; }
    /// Of `retry_after`.
    [[nodiscard]] std::optional<std::chrono::milliseconds> pause() const noexcept { return pause_; }
    /// For the operator; empty if there is none.
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

/// Thrown by `Message::throw_if_stopped`: a handler that lets it pass gives its message back.
struct Stopped {};

}  // namespace orderlane
