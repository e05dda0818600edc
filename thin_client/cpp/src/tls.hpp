// TLS as a filter between byte buffers, by OpenSSL; no I/O.
#pragma once

#include <orderlane/options.hpp>

#include <cstddef>
#include <memory>
#include <openssl/ssl.h>
#include <span>
#include <string>
#include <string_view>

namespace orderlane::detail {

struct FreeTls {
    void operator()(SSL_CTX* context) const noexcept { SSL_CTX_free(context); }
    void operator()(SSL* session) const noexcept { SSL_free(session); }
};

/// TLS settings of all connections of a client.
class TlsSettings {
public:
    /// Throws std::invalid_argument that names a file that cannot be used.
    explicit TlsSettings(const Tls& options);

    [[nodiscard]] SSL_CTX* context() const noexcept { return context_.get(); }
    [[nodiscard]] const std::string& server_name() const noexcept { return server_name_; }

private:
    std::unique_ptr<SSL_CTX, FreeTls> context_;
    std::string server_name_;
};

/// One connection's TLS state. Methods throw std::runtime_error for TLS failures.
class TlsSession {
public:
    TlsSession(const TlsSettings& settings, const std::string& host);

    /// Continues the handshake; true once it is done. Send `outgoing` after each call.
    bool handshake();
    /// Adds received bytes.
    void feed(std::string_view bytes);
    /// Reads available decrypted bytes; 0: feed more.
    std::size_t read(std::span<char> buffer);
    void write(std::string_view bytes);
    /// Bytes to send now.
    [[nodiscard]] std::string outgoing();
    /// True if the other side has announced the end of its data.
    [[nodiscard]] bool ended() const noexcept;

private:
    [[noreturn]] void fail(const char* what) const;

    std::unique_ptr<SSL, FreeTls> session_;
    BIO* incoming_ = nullptr;  // both owned by the session
    BIO* outgoing_ = nullptr;
};

}  // namespace orderlane::detail
