// TLS as a filter between bytes and bytes, by OpenSSL; it does no I/O.
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

/// What all connections of a client have in common.
class TlsSettings {
public:
    /// Throws std::invalid_argument if a file cannot be used, naming it.
    explicit TlsSettings(const Tls& options);

    [[nodiscard]] SSL_CTX* context() const noexcept { return context_.get(); }
    [[nodiscard]] const std::string& server_name() const noexcept { return server_name_; }

private:
    std::unique_ptr<SSL_CTX, FreeTls> context_;
    std::string server_name_;
};

/// One connection's side. Methods throw std::runtime_error for what TLS refuses.
class TlsSession {
public:
    TlsSession(const TlsSettings& settings, const std::string& host);

    /// Goes on with the handshake; true once it is done. What it wants to send is `outgoing`.
    bool handshake();
    /// Takes received bytes in.
    void feed(std::string_view bytes);
    /// Decrypted bytes, as many as are there; 0: more have to be fed.
    std::size_t read(std::span<char> buffer);
    void write(std::string_view bytes);
    /// What has to be sent now.
    [[nodiscard]] std::string outgoing();
    /// True if the other side has said that it sends no more.
    [[nodiscard]] bool ended() const noexcept;

private:
    [[noreturn]] void fail(const char* what) const;

    std::unique_ptr<SSL, FreeTls> session_;
    BIO* incoming_ = nullptr;  // both owned by the session
    BIO* outgoing_ = nullptr;
};

}  // namespace orderlane::detail
