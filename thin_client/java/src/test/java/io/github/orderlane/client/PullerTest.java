package io.github.orderlane.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

/** Single calls against a scripted proxy. */
final class PullerTest {
    @Test
    void closeEndsAPullInAnotherThread() throws Exception {
        try (FakeProxy proxy = new FakeProxy()) {
            OrderlanePuller puller = OrderlanePuller.builder(proxy.address()).group("g").build();
            var pulled = CompletableFuture.supplyAsync(() -> puller.pull(1, Duration.ofHours(1)));
            proxy.until(() -> proxy.client() != null);
            puller.close();
            var ended =
                    assertThrows(ExecutionException.class, () -> pulled.get(20, TimeUnit.SECONDS));
            assertInstanceOf(ConnectionLostException.class, ended.getCause());
            assertEquals(0, puller.pull(1, Duration.ZERO).size()); // connects again
            puller.close();
        }
    }
}
