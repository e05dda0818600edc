#include "tls.hpp"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <stdexcept>
#include <tuple>

namespace orderlane::detail {
namespace {

/// Returns OpenSSL's first reason in this thread's queue, and empties the queue.
std::string first_reason() {
    const unsigned long code = ERR_get_error();
    ERR_clear_error();
    const char* reason = code == 0 ? nullptr : ERR_reason_error_string(code);
    return reason == nullptr ? "unknown reason" : reason;
}

void check_file(bool usable, const char* option, const std::string& file) {
    if (usable) return;
    throw std::invalid_argument(std::string(option) + " '" + file + "' cannot be used: " +
                                first_reason() + "; expected a PEM file");
}

bool is_ip(const std::string& host) {
    in6_addr buffer{};
    return inet_pton(AF_INET, host.c_str(), &buffer) == 1 ||
           inet_pton(AF_INET6, host.c_str(), &buffer) == 1;
}

}  // namespace

TlsSettings::TlsSettings(const Tls& options)
    : context_(SSL_CTX_new(TLS_client_method())), server_name_(options.server_name) {
    if (!context_) throw std::runtime_error("TLS cannot be set up: " + first_reason());
    if (options.cert_file.empty() != options.key_file.empty()) {
        throw std::invalid_argument("tls has one of cert_file and key_file: expected both or neither");
    }
    SSL_CTX* context = context_.get();
    SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
    if (options.ca_file.empty()) {
        SSL_CTX_set_default_verify_paths(context);
    } else {
        const auto& file = options.ca_file;
        check_file(SSL_CTX_load_verify_locations(context, file.c_str(), nullptr) == 1,
                   "tls.ca_file", file);
    }
    if (!options.cert_file.empty()) {
        const auto& [cert, key] = std::tie(options.cert_file, options.key_file);
        check_file(SSL_CTX_use_certificate_chain_file(context, cert.c_str()) == 1,
                   "tls.cert_file", cert);
        check_file(SSL_CTX_use_PrivateKey_file(context, key.c_str(), SSL_FILETYPE_PEM) == 1,
                   "tls.key_file", key);
        check_file(SSL_CTX_check_private_key(context) == 1, "tls.key_file", key);
    }
    ERR_clear_error();
}

TlsSession::TlsSession(const TlsSettings& settings, const std::string& host)
    : session_(SSL_new(settings.context())) {
    incoming_ = BIO_new(BIO_s_mem());
    outgoing_ = BIO_new(BIO_s_mem());
    if (!session_ || incoming_ == nullptr || outgoing_ == nullptr) fail("cannot start");
    SSL* session = session_.get();
    SSL_set_bio(session, incoming_, outgoing_);
    SSL_set_connect_state(session);
    const std::string& name = settings.server_name().empty() ? host : settings.server_name();
    bool named = false;
    if (is_ip(name)) {
        named = X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(session), name.c_str()) == 1;
    } else {
        SSL_set_hostflags(session, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
        named = SSL_set1_host(session, name.c_str()) == 1 &&
                SSL_set_tlsext_host_name(session, name.c_str()) == 1;
    }
    if (!named) fail("cannot check the name of the proxy");
}

bool TlsSession::handshake() {
    ERR_clear_error();
    const int done = SSL_do_handshake(session_.get());
    if (done == 1) return true;
    if (SSL_get_error(session_.get(), done) != SSL_ERROR_WANT_READ) fail("handshake failed");
    return false;
}

void TlsSession::feed(std::string_view bytes) {
    BIO_write(incoming_, bytes.data(), static_cast<int>(bytes.size()));
}

std::size_t TlsSession::read(std::span<char> buffer) {
    ERR_clear_error();
    std::size_t count = 0;
    const int done = SSL_read_ex(session_.get(), buffer.data(), buffer.size(), &count);
    if (done == 1) return count;
    const int error = SSL_get_error(session_.get(), done);
    if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_ZERO_RETURN) fail("reading failed");
    return 0;
}

void TlsSession::write(std::string_view bytes) {
    ERR_clear_error();
    std::size_t written = 0;
    // The memory buffer behind it accepts everything at once.
    if (SSL_write_ex(session_.get(), bytes.data(), bytes.size(), &written) != 1 ||
        written != bytes.size()) {
        fail("writing failed");
    }
}

std::string TlsSession::outgoing() {
    std::string bytes(BIO_ctrl_pending(outgoing_), '\0');
    if (!bytes.empty()) BIO_read(outgoing_, bytes.data(), static_cast<int>(bytes.size()));
    return bytes;
}

bool TlsSession::ended() const noexcept {
    return (SSL_get_shutdown(session_.get()) & SSL_RECEIVED_SHUTDOWN) != 0;
}

void TlsSession::fail(const char* what) const {
    const long verified = session_ ? SSL_get_verify_result(session_.get()) : X509_V_OK;
    std::string reason = first_reason();
    if (verified != X509_V_OK) reason = X509_verify_cert_error_string(verified);
    throw std::runtime_error(std::string("TLS: ") + what + ": " + reason);
}

}  // namespace orderlane::detail
