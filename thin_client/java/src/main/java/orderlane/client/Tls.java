package orderlane.client;

import java.nio.file.Path;
import java.util.Objects;
import java.util.Optional;
import javax.net.ssl.SSLContext;
import orderlane.client.internal.PemContext;

/**
 * How connections are secured. The server's certificate has to be signed by a known authority, and
 * has to name the host that was asked for.
 */
public final class Tls {
    private final SSLContext context;
    private final String serverName;

    private Tls(SSLContext context, String serverName) {
        this.context = context;
        this.serverName = serverName;
    }

    /** Begins with the authorities that Java knows, and no certificate of our own. */
    public static Builder builder() {
        return new Builder();
    }

    public SSLContext context() {
        return context;
    }

    /** What the certificate has to name instead of the host that is asked for. */
    public Optional<String> serverName() {
        return Optional.ofNullable(serverName);
    }

    /** Collects what is known. */
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

        /** What the server's certificate has to name, where that is not the host asked for. */
        public Builder serverName(String name) {
            serverName = Objects.requireNonNull(name);
            return this;
        }

        /** A context made elsewhere; excludes the files. */
        public Builder context(SSLContext made) {
            context = Objects.requireNonNull(made);
            return this;
        }

        /** Reads the files. Throws IllegalArgumentException that says which cannot be used. */
        public Tls build() {
            if (context != null && (authorities != null || certificate != null)) {
                throw new IllegalArgumentException(
                        "a TLS context and files exclude each other: give one of them");
            }
            SSLContext made =
                    context != null ? context : PemContext.of(authorities, certificate, key);
            return new Tls(made, serverName);
        }
    }
}
