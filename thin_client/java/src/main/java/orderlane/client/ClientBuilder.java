package orderlane.client;

import java.time.Duration;
import java.util.List;
import java.util.Objects;
import orderlane.client.internal.Address;
import orderlane.client.internal.Times;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * What every client of a proxy can be told. B is the builder itself.
 *
 * @param <B> the builder
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

    /** How long a connection or an answer may take, beyond a pull's own wait; default 3 s. */
    public B requestTimeout(Duration timeout) {
        requestTimeout = Times.checked("requestTimeout", timeout);
        return self();
    }

    /** Goes with every request, to say who is asking; default none. */
    public B token(String secret) {
        token = Objects.requireNonNull(secret);
        return self();
    }

    /** Secures the connections; default none. */
    public B tls(Tls settings) {
        tls = Objects.requireNonNull(settings);
        return self();
    }

    /** What is logged goes here; default: the SLF4J logger {@code orderlane}. */
    public B logger(Logger logger) {
        log = Objects.requireNonNull(logger);
        return self();
    }
}
