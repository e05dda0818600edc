// Bytes to a proxy and back, within a deadline: TCP, with TLS over it if wanted.
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

/// A file descriptor and its end.
class Descriptor {
public:
    explicit Descriptor(int number = -1) noexcept : number_(number) {}
    Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
    Descriptor& operator=(Descriptor&& other) noexcept {
        std::swap(number_, other.number_);
        return *this;
    }
    ~Descriptor();
    /// Closes it now.
    void close() noexcept;
    [[nodiscard]] int get() const noexcept { return number_; }

private:
    int number_;
};

/// Makes what waits on a stream end, from another thread; once, and for good.
class Interrupt {
public:
    Interrupt();
    void trip() noexcept;
    [[nodiscard]] bool tripped() const noexcept;
    [[nodiscard]] int descriptor() const noexcept { return event_.get(); }

private:
    Descriptor event_;
};

/// Where a connection is to lead.
struct Destination {
    Address address;
    /// Null: no TLS. Outlives the connection.
    const TlsSettings* tls = nullptr;
    /// Of the addresses that a name stands for: how many to pass over at first.
    std::size_t turn = 0;
};

/// Why bytes did not come or go.
class StreamError : public std::runtime_error {
public:
    enum class Kind { timeout, ended, broke, interrupted };
    StreamError(Kind kind, const std::string& text) : std::runtime_error(text), kind_(kind) {}
    [[nodiscard]] Kind kind() const noexcept { return kind_; }

private:
    Kind kind_;
};

/// One connection. Every method throws StreamError; afterwards it cannot be used.
class Stream {
public:
    /// Connects; a name with several addresses has each of them tried, in shares of the time.
    /// `interrupt` has to outlive the stream.
    Stream(const Destination& to, const Interrupt& interrupt, Nanos deadline);

    void write(std::string_view bytes, Nanos deadline);
    /// Fills the buffer.
    void read(std::span<char> buffer, Nanos deadline);
    /// True if the other side has ended the connection, or sent what nobody asked for.
    [[nodiscard]] bool stale() const noexcept;
    /// In a child process: closes the parent's socket here, and says nothing over it.
    void abandon() noexcept { socket_.close(); }

private:
    void handshake(Nanos deadline);
    void send_raw(std::string_view bytes, Nanos deadline);
    /// Some bytes; never none.
    std::size_t receive_raw(std::span<char> buffer, Nanos deadline);

    const Interrupt& interrupt_;
    Descriptor socket_;
    std::unique_ptr<TlsSession> tls_;
};

}  // namespace orderlane::detail
