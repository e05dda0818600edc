package io.github.orderlane.client;

import io.github.orderlane.client.internal.Address;
import io.github.orderlane.client.internal.Times;
import java.time.Duration;
import java.util.List;
import java.util.Objects;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Options of every client of a proxy.
 *
 * @param <B> the builder itself
 */
public abstract sealed class ClientBuilder<B extends ClientBuilder<B>>
        permits OrderlaneConsumer.Builder, OrderlaneProducer.Builder, OrderlanePuller.Builder {
    final List<Address> addresses;
    Duration requestTimeout = Duration.ofSeconds(3);
    String token;
    Tls tls;
    Logger log = LoggerFactory.getLogger("orderlane");

    ClientBuilder(List<String> servers) {
        addresses = Address.parseAll(servers);
    }

    abstract B self();

    /** Limits the wait for a connection or an answer, beyond a pull's own wait; default 3 s. */
    public B requestTimeout(Duration timeout) {
        requestTimeout = Times.checked("requestTimeout", timeout);
        return self();
    }

    /** Authenticates the client; sent with every request. Default: none. */
    public B token(String secret) {
        token = Objects.requireNonNull(secret);
        return self();
    }

    /** Secures the connections; default: none. */
    public B tls(Tls settings) {
        tls = Objects.requireNonNull(settings);
        return self();
    }

    /** Sets the logger; default: the SLF4J logger {@code orderlane}. */
    public B logger(Logger logger) {
        log = Objects.requireNonNull(logger);
        return self();
    }
}
