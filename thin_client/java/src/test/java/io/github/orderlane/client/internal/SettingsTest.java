package io.github.orderlane.client.internal;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.orderlane.client.OrderlaneConsumer;
import io.github.orderlane.client.OrderlanePuller;
import io.github.orderlane.client.Outcome;
import io.github.orderlane.client.OutgoingMessage;
import io.github.orderlane.client.Tls;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Invalid options are refused with an explanation. */
class SettingsTest {
    private static void refused(String sentence, Executable code) {
        var error = assertThrows(IllegalArgumentException.class, code);
        assertTrue(error.getMessage().contains(sentence), error.getMessage());
    }

    @Test
    void commonFormsOfAddressesAreParsed() {
        assertEquals(
                List.of(
                        new Address("proxy", 9713),
                        new Address("10.0.0.1", 80),
                        new Address("::1", 9714),
                        new Address("b", 1)),
                Address.parseAll(List.of("proxy, 10.0.0.1:80,[::1]:9714", "b:1")));
        assertEquals("[::1]:9714", new Address("::1", 9714).toString());
    }

    @ParameterizedTest
    @ValueSource(strings = {"", "a b", "a:", "a:0", "a:65536", "a:x", ":1", "::1", "[::1", "a,,b"})
    void whatIsNoAddressIsRefused(String text) {
        refused("is not a proxy address", () -> Address.parseAll(List.of(text)));
    }

    @Test
    void optionsOutOfRangeAreRefused() {
        refused("no proxy address given", () -> OrderlaneConsumer.builder());
        OrderlaneConsumer.Builder builder = OrderlaneConsumer.builder("a");
        refused("group is empty", builder::build);
        refused("group is empty", () -> OrderlanePuller.builder("a").group("").build());
        refused("concurrency is 0: expected at least 1", () -> builder.concurrency(0));
        refused("prefetch is -1", () -> builder.prefetch(-1));
        refused("maxRun is 0", () -> builder.maxRun(0));
        refused("empty topic name", () -> builder.topic(""));
        refused("empty topic name", () -> OrderlanePuller.builder("a").topic(""));
        refused("topics is empty", () -> builder.topics(List.of()));
        refused("drainTimeout is PT-1S", () -> builder.drainTimeout(Duration.ofSeconds(-1)));
        refused("retry after PT-1S", () -> Outcome.retryAfter(Duration.ofSeconds(-1)));
    }

    @Test
    void argumentsOfCallsAreRefusedBeforeARequest() {
        Duration none = Duration.ZERO;
        try (OrderlanePuller puller = OrderlanePuller.builder("127.0.0.1:1").group("g").build()) {
            refused("most is 0: expected at least 1", () -> puller.pull(0, none));
            refused("most is -1: expected at least 1", () -> puller.pull(-1, none));
            refused("wait is PT-1S", () -> puller.pull(1, Duration.ofSeconds(-1)));
        }
        Duration endless = Duration.ofSeconds(Long.MAX_VALUE);
        refused("expected at most 10,000 days", () -> OutgoingMessage.to("t").delay(endless));
    }

    @Test
    void tlsFilesOfNoUseAreNamed(@TempDir Path folder) throws Exception {
        Path file = folder.resolve("x.pem");
        refused("x.pem cannot be read", () -> Tls.builder().authorities(file).build());
        String kind = "RSA PRIVATE KEY-----\n";
        Files.writeString(file, "-----BEGIN " + kind + "AA==\n-----END " + kind);
        refused("holds no certificate", () -> Tls.builder().authorities(file).build());
        refused("holds no certificate", () -> Tls.builder().certificate(file, file).build());
    }

    @Test
    void suspendedTimeCounts() {
        Clock clock = new Clock();
        long nanos = System.nanoTime();
        long wall = System.currentTimeMillis();
        long before = clock.advance(nanos, wall);
        assertEquals(before + 5, clock.advance(nanos + 5, wall + 900)); // a wall clock may be set
        long after = clock.advance(nanos + 10, wall + 60_900);
        assertEquals(60_000, (after - before) / Times.MS);
        assertEquals(after + 10, clock.advance(nanos + 20, wall)); // and backwards
    }

    @Test
    void timesHaveAReadableForm() {
        assertEquals("3 s", Times.seconds(3_000 * Times.MS));
        assertEquals("0.25 s", Times.seconds(250 * Times.MS));
        assertEquals("10 s", Times.seconds(10_000 * Times.MS));
        assertTrue(Times.nanos(Duration.ofSeconds(Long.MAX_VALUE)) > 0);
    }
}
