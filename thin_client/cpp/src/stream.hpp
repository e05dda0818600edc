// A byte stream to a proxy with deadlines: TCP, optionally with TLS.
#pragma once

#include <orderlane/options.hpp>

#include "address.hpp"
#include "clock.hpp"
#include "tls.hpp"

#include <cstddef>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace orderlane::detail {

/// Owns a file descriptor.
class Descriptor {
public:
    explicit Descriptor(int number = -1) noexcept : number_(number) {}
    Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
    Descriptor& operator=(Descriptor&& other) noexcept {
        std::swap(number_, other.number_);
        return *this;
    }
    ~Descriptor();
    /// Closes it early.
    void close() noexcept;
    [[nodiscard]] int get() const noexcept { return number_; }

private:
    int number_;
};

/// Cancels waits on a stream from another thread, once and permanently.
class Interrupt {
public:
    Interrupt();
    void trip() noexcept;
    [[nodiscard]] bool tripped() const noexcept;
    [[nodiscard]] int descriptor() const noexcept { return event_.get(); }

private:
    Descriptor event_;
};

/// The target of a connection.
struct Destination {
    Address address;
    /// Null: no TLS. Must outlive the connection.
    const TlsSettings* tls = nullptr;
    /// Number of addresses to skip at first, if the name has several.
    std::size_t turn = 0;
};

/// A failure of a stream.
class StreamError : public std::runtime_error {
public:
    enum class Kind { timeout, ended, broke, interrupted };
    StreamError(Kind kind, const std::string& text) : std::runtime_error(text), kind_(kind) {}
    [[nodiscard]] Kind kind() const noexcept { return kind_; }

private:
    Kind kind_;
};

/// One connection. Every method throws StreamError, after which it must not be used.
class Stream {
public:
    /// Connects; if a name has several addresses, each gets a share of the time. `interrupt` must
    /// outlive the stream.
    Stream(const Destination& to, const Interrupt& interrupt, Nanos deadline);

    void write(std::string_view bytes, Nanos deadline);
    /// Fills the buffer.
    void read(std::span<char> buffer, Nanos deadline);
    /// True if the other side has closed the connection, or sent unexpected data.
    [[nodiscard]] bool stale() const noexcept;
    /// In a child process: closes the parent's socket without sending anything.
    void abandon() noexcept { socket_.close(); }

private:
    void handshake(Nanos deadline);
    void send_raw(std::string_view bytes, Nanos deadline);
    /// Receives at least one byte.
    std::size_t receive_raw(std::span<char> buffer, Nanos deadline);

    const Interrupt& interrupt_;
    Descriptor socket_;
    std::unique_ptr<TlsSession> tls_;
};

}  // namespace orderlane::detail
