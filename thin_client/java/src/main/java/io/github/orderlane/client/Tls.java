package io.github.orderlane.client;

import io.github.orderlane.client.internal.PemContext;
import java.nio.file.Path;
import java.util.Objects;
import java.util.Optional;
import javax.net.ssl.SSLContext;

/**
 * TLS options. The server's certificate must be signed by a trusted authority and must match the
 * host dialled.
 */
public final class Tls {
    private final SSLContext context;
    private final String serverName;

    private Tls(SSLContext context, String serverName) {
        this.context = context;
        this.serverName = serverName;
    }

    /** Starts with Java's trusted authorities and without a client certificate. */
    public static Builder builder() {
        return new Builder();
    }

    public SSLContext context() {
        return context;
    }

    /** The name that the certificate must have instead of the host dialled. */
    public Optional<String> serverName() {
        return Optional.ofNullable(serverName);
    }

    /** Fields of TLS options. */
    public static final class Builder {
        private Path authorities;
        private Path certificate;
        private Path key;
        private String serverName;
        private SSLContext context;

        private Builder() {}

        /** A PEM file with the certificates of the authorities to trust, instead of Java's own. */
        public Builder authorities(Path file) {
            authorities = Objects.requireNonNull(file);
            return this;
        }

        /** PEM files with the client's certificate (and its chain), and its unencrypted key. */
        public Builder certificate(Path file, Path keyFile) {
            certificate = Objects.requireNonNull(file);
            key = Objects.requireNonNull(keyFile);
            return this;
        }

        /** The name in the server's certificate, if it differs from the host dialled. */
        public Builder serverName(String name) {
            serverName = Objects.requireNonNull(name);
            return this;
        }

        /** An existing context; excludes files. */
        public Builder context(SSLContext made) {
            context = Objects.requireNonNull(made);
            return this;
        }

        /** Reads the files. Throws IllegalArgumentException that names an unusable file. */
        public Tls build() {
            if (context != null && (authorities != null || certificate != null)) {
                throw new IllegalArgumentException(
                        "a TLS context and files exclude each other: set one of them");
            }
            SSLContext made =
                    context != null ? context : PemContext.of(authorities, certificate, key);
            return new Tls(made, serverName);
        }
    }
}
