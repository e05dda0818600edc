#include "stream.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <future>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <vector>

namespace orderlane::detail {
namespace {

using Kind = StreamError::Kind;

std::string reason_of(int error) { return std::generic_category().message(error); }

StreamError failure(int error) { return {Kind::broke, reason_of(error)}; }

void check_interrupt(const Interrupt& interrupt) {
    if (interrupt.tripped()) throw StreamError(Kind::interrupted, "closed");
}

/// Waits until the socket is ready, fails, or times out. Data that is already there counts even
/// after the deadline: this process may have been stopped.
void wait_for(int socket, short events, Nanos deadline, const Interrupt& interrupt) {
    for (;;) {
        const Nanos left = std::max<Nanos>(deadline - now_ns(), 0);
        std::array<pollfd, 2> polled{pollfd{socket, events, 0},
                                     pollfd{interrupt.descriptor(), POLLIN, 0}};
        const auto wait_ms = static_cast<int>(std::min<Nanos>((left + ms - 1) / ms, 3'600'000));
        const int ready = ::poll(polled.data(), polled.size(), wait_ms);
        if (ready < 0 && errno != EINTR) throw failure(errno);
        check_interrupt(interrupt);
        if (ready > 0 && polled[0].revents != 0) return;
        if (left == 0) throw StreamError(Kind::timeout, "timed out");
    }
}

struct Resolved {
    int family = 0;
    socklen_t length = 0;
    sockaddr_storage address{};
};

struct FreeList {
    void operator()(addrinfo* list) const noexcept { freeaddrinfo(list); }
};

std::vector<Resolved> look_up(const Address& address, int flags) {
    addrinfo hints{};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = flags;
    addrinfo* list = nullptr;
    const auto port = std::to_string(address.port);
    const int error = getaddrinfo(address.host.c_str(), port.c_str(), &hints, &list);
    if (error != 0) throw StreamError(Kind::broke, gai_strerror(error));
    const std::unique_ptr<addrinfo, FreeList> owner(list);
    std::vector<Resolved> found;
    for (const addrinfo* each = list; each != nullptr; each = each->ai_next) {
        auto& resolved = found.emplace_back(Resolved{each->ai_family, each->ai_addrlen, {}});
        std::memcpy(&resolved.address, each->ai_addr, each->ai_addrlen);
    }
    return found;
}

/// Resolves the addresses of a host. The system's lookup has no time limit, so it runs in a thread,
/// which is abandoned after the deadline.
std::vector<Resolved> resolve(const Address& address, Nanos deadline, const Interrupt& interrupt) {
    try {
        return look_up(address, AI_NUMERICHOST);
    } catch (const StreamError&) {
        // It is a name.
    }
    std::packaged_task<std::vector<Resolved>()> task(
        [address] { return look_up(address, 0); });
    auto answer = task.get_future();
    try {
        std::thread(std::move(task)).detach();
    } catch (const std::system_error& error) {
        throw StreamError(Kind::broke, error.what());
    }
    constexpr auto slice = std::chrono::milliseconds(20);
    while (answer.wait_for(slice) != std::future_status::ready) {
        check_interrupt(interrupt);
        if (now_ns() >= deadline) {
            throw StreamError(Kind::timeout, "its name was not resolved in time");
        }
    }
    return answer.get();
}

Descriptor connect_to(const Resolved& to, Nanos deadline, const Interrupt& interrupt) {
    Descriptor made(::socket(to.family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    const int socket = made.get();
    if (socket < 0) throw failure(errno);
    const int on = 1;
    ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (::connect(socket, reinterpret_cast<const sockaddr*>(&to.address), to.length) == 0) {
        return made;
    }
    if (errno != EINPROGRESS) throw failure(errno);
    wait_for(socket, POLLOUT, deadline, interrupt);
    int error = 0;
    socklen_t length = sizeof error;
    ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &length);
    if (error != 0) throw failure(error);
    return made;
}

Descriptor connect_to(const Destination& to, Nanos deadline, const Interrupt& interrupt) {
    auto found = resolve(to.address, deadline, interrupt);
    if (found.empty()) throw StreamError(Kind::broke, "its name has no address");
    std::rotate(found.begin(), found.begin() + static_cast<long>(to.turn % found.size()),
                found.end());
    for (std::size_t index = 0; index < found.size(); ++index) {
        const auto others = static_cast<Nanos>(found.size() - index);
        const Nanos now = now_ns();
        try {
            return connect_to(found[index], now + (deadline - now) / others, interrupt);
        } catch (const StreamError& error) {
            if (error.kind() == Kind::interrupted || others == 1) throw;
        }
    }
    throw std::logic_error("no address was tried");
}

}  // namespace

Descriptor::~Descriptor() { close(); }

void Descriptor::close() noexcept {
    if (number_ >= 0) ::close(std::exchange(number_, -1));
}

Interrupt::Interrupt() : event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (event_.get() < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
}

void Interrupt::trip() noexcept {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(event_.get(), &one, sizeof one);
}

bool Interrupt::tripped() const noexcept {
    pollfd polled{event_.get(), POLLIN, 0};
    return ::poll(&polled, 1, 0) > 0;
}

Stream::Stream(const Destination& to, const Interrupt& interrupt, Nanos deadline)
    : interrupt_(interrupt), socket_(connect_to(to, deadline, interrupt)) {
    if (to.tls == nullptr) return;
    try {
        tls_ = std::make_unique<TlsSession>(*to.tls, to.address.host);
        handshake(deadline);
    } catch (const StreamError&) {
        throw;
    } catch (const std::runtime_error& error) {
        throw StreamError(Kind::broke, error.what());
    }
}

void Stream::handshake(Nanos deadline) {
    std::array<char, 16'384> buffer;
    for (;;) {
        bool done = false;
        try {
            done = tls_->handshake();
        } catch (const std::runtime_error&) {
            send_raw(tls_->outgoing(), deadline);  // send the alert
            throw;
        }
        send_raw(tls_->outgoing(), deadline);
        if (done) return;
        tls_->feed({buffer.data(), receive_raw(buffer, deadline)});
    }
}

void Stream::write(std::string_view bytes, Nanos deadline) {
    if (!tls_) return send_raw(bytes, deadline);
    try {
        tls_->write(bytes);
    } catch (const std::runtime_error& error) {
        throw StreamError(Kind::broke, error.what());
    }
    send_raw(tls_->outgoing(), deadline);
}

void Stream::read(std::span<char> buffer, Nanos deadline) {
    while (!buffer.empty()) {
        std::size_t count = 0;
        if (!tls_) {
            count = receive_raw(buffer, deadline);
        } else {
            try {
                count = tls_->read(buffer);
            } catch (const std::runtime_error& error) {
                throw StreamError(Kind::broke, error.what());
            }
            if (count == 0) {
                if (tls_->ended()) throw StreamError(Kind::ended, "ended by the proxy");
                std::array<char, 16'384> raw;
                tls_->feed({raw.data(), receive_raw(raw, deadline)});
            }
        }
        buffer = buffer.subspan(count);
    }
}

bool Stream::stale() const noexcept {
    pollfd polled{socket_.get(), POLLIN, 0};
    if (::poll(&polled, 1, 0) <= 0) return false;
    if (!tls_) return true;
    // With TLS, session tickets may arrive; only the end of the stream counts.
    char byte = 0;
    return ::recv(socket_.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) <= 0;
}

void Stream::send_raw(std::string_view bytes, Nanos deadline) {
    while (!bytes.empty()) {
        const auto sent = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (sent >= 0) {
            bytes.remove_prefix(static_cast<std::size_t>(sent));
        } else if (errno == EAGAIN) {
            wait_for(socket_.get(), POLLOUT, deadline, interrupt_);
        } else if (errno != EINTR) {
            throw failure(errno);
        }
    }
}

std::size_t Stream::receive_raw(std::span<char> buffer, Nanos deadline) {
    for (;;) {
        const auto count = ::recv(socket_.get(), buffer.data(), buffer.size(), 0);
        if (count > 0) return static_cast<std::size_t>(count);
        if (count == 0) throw StreamError(Kind::ended, "ended by the proxy");
        if (errno == EAGAIN) {
            wait_for(socket_.get(), POLLIN, deadline, interrupt_);
        } else if (errno != EINTR) {
            throw failure(errno);
        }
    }
}

}  // namespace orderlane::detail
