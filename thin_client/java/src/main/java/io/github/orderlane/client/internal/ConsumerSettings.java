package io.github.orderlane.client.internal;

import io.github.orderlane.client.Observer;
import io.github.orderlane.client.Tls;
import io.github.orderlane.client.TraceHook;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.Executor;
import org.slf4j.Logger;

/**
 * Validated options of a consumer.
 *
 * @param tls null: none
 * @param executor runs handlers; null: the client's own threads
 * @param interruptHandlers whether to interrupt them when a lease is lost or the drain times out
 */
public record ConsumerSettings(
        List<Address> addresses,
        String group,
        List<String> topics,
        String clientId,
        int concurrency,
        int prefetch,
        int maxRun,
        Duration ackLinger,
        Duration requestTimeout,
        Duration drainTimeout,
        String token,
        Tls tls,
        Executor executor,
        boolean interruptHandlers,
        boolean drainOnShutdown,
        List<Observer> observers,
        TraceHook trace,
        Logger log) {

    SessionOptions session() {
        return new SessionOptions(
                group,
                topics,
                clientId,
                ClientNames.version(),
                concurrency,
                prefetch,
                maxRun,
                Times.nanos(ackLinger),
                ClientNames.hex(4) + "-",
                token);
    }
}
