package io.github.orderlane.client.internal;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import io.github.orderlane.client.ConnectionLostException;
import io.github.orderlane.client.OutgoingMessage;
import io.github.orderlane.client.ProtocolException;
import io.github.orderlane.client.SendFailedException;
import io.github.orderlane.client.gen.producer.Message;
import io.github.orderlane.client.gen.producer.MessageResult;
import io.github.orderlane.client.gen.producer.Result;
import java.io.IOException;
import java.io.Reader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.OptionalInt;
import java.util.Set;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;

/** A producer's requests and retries. */
class DeliveryTest {
    private static final long MS = Times.MS;
    private static final long START = 1_000 * MS;

    private static OutgoingMessage message(String id, String key) {
        return OutgoingMessage.to("orders").body("x").key(key).messageId(id).build();
    }

    private static List<Delivery> deliveries(OutgoingMessage... messages) {
        return Delivery.of(
                List.of(messages),
                Collections.nCopies(messages.length, Map.of()),
                "secret",
                START + 1_000 * MS);
    }

    private static Delivery delivery(OutgoingMessage... messages) {
        List<Delivery> deliveries = deliveries(messages);
        assertEquals(1, deliveries.size());
        return deliveries.get(0);
    }

    private static Message wire(OutgoingMessage message) {
        return WireMessages.of(message, Map.of("traceparent", "00-1"), "secret");
    }

    @Test
    void keyHashMatchesOtherProducers() throws IOException {
        Path vectors = Path.of("../../tests/conformance/key_hash_vectors.json");
        int read = 0;
        try (Reader file = Files.newBufferedReader(vectors)) {
            for (JsonElement each : JsonParser.parseReader(file).getAsJsonArray()) {
                JsonObject vector = each.getAsJsonObject();
                String key = vector.get("key").getAsString();
                Message sent = wire(OutgoingMessage.to("t").body("").shardingKey(key).build());
                assertEquals(vector.get("hash").getAsLong(), sent.getHashId(), key);
                read++;
            }
        }
        assertTrue(read > 10);
    }

    @Test
    void queueNumberPrecedesShardingKeyAndKey() {
        Message plain = wire(OutgoingMessage.to("t").body("").build());
        assertFalse(plain.isSetHashId() || plain.isSetKey());
        assertEquals(-1, plain.getPartitionId());
        OutgoingMessage.Builder keyed = OutgoingMessage.to("t").body("{\"a\": \"s\"}").key("k");
        assertEquals("k".hashCode(), wire(keyed.build()).getHashId());
        assertEquals("s".hashCode(), wire(keyed.shardingPath("$.a").build()).getHashId());
        assertEquals("z".hashCode(), wire(keyed.shardingKey("z").build()).getHashId());
        Message named = wire(keyed.queue(3).build());
        assertFalse(named.isSetHashId());
        assertEquals(3, named.getPartitionId());
        assertEquals("k", named.getKey());
        assertEquals(-2, wire(keyed.anyQueue().build()).getPartitionId());
    }

    @Test
    void everyMessageHasAnIdATokenAndItsTrace() {
        Message made = wire(OutgoingMessage.to("t").body("").property("p", "v").build());
        assertTrue(WireMessages.idOf(made).matches("[0-9A-F]{32}"));
        assertEquals("secret", made.getToken());
        assertEquals("v", made.getProperties().get("p"));
        assertEquals("00-1", made.getProperties().get("traceparent"));
        OutgoingMessage.Builder traced = OutgoingMessage.to("t").body("");
        Message own = wire(traced.property("traceparent", "mine").build());
        assertEquals("mine", own.getProperties().get("traceparent"));
    }

    @Test
    void errorsExplainInvalidMessages() {
        OutgoingMessage.Builder builder = OutgoingMessage.to("t");
        for (Runnable wrong :
                List.<Runnable>of(
                        () -> OutgoingMessage.to(""),
                        () -> builder.key("\ud800"),
                        () -> builder.body("\udc00"),
                        () -> builder.queue(-1),
                        () -> builder.property("p", null),
                        () -> builder.delay(Duration.ofMillis(-1)),
                        () -> builder.build())) {
            assertThrows(IllegalArgumentException.class, wrong::run);
        }
        OutgoingMessage large = OutgoingMessage.to("t").body(new byte[5_000_000]).build();
        assertThrows(IllegalArgumentException.class, () -> deliveries(large));
    }

    @Test
    void largeBatchesAreSplitAndDelayedMessagesAreSentAlone() {
        OutgoingMessage[] large =
                IntStream.range(0, 5)
                        .mapToObj(n -> OutgoingMessage.to("t").body(new byte[900_000]).build())
                        .toArray(OutgoingMessage[]::new);
        assertEquals(
                List.of(2, 2, 1), deliveries(large).stream().map(d -> d.ids().size()).toList());
        OutgoingMessage late =
                OutgoingMessage.to("t").body("").delay(Duration.ofSeconds(1)).build();
        List<Delivery> mixed = deliveries(message("A", "k"), late, message("B", "k"));
        assertEquals(3, mixed.size());
        assertEquals("sendDelaySync", mixed.get(1).attempt(START, 3_000 * MS).call().method);
    }

    @Test
    void onlyUnstoredMessagesAreResent() {
        Delivery delivery = delivery(message("A", "a"), message("B", "b"), message("C", "c"));
        Result partly =
                new Result(15, "too fast")
                        .setMessages(
                                List.of(
                                        new MessageResult(0),
                                        new MessageResult(15),
                                        new MessageResult(70)));
        assertTrue(delivery.pauseAfter(partly, START, 0) > 0);
        assertEquals(List.of("B", "C"), delivery.openIds());
        assertEquals(
                Set.of(
                        new SendOrder.Key("orders", false, "b".hashCode()),
                        new SendOrder.Key("orders", false, "c".hashCode())),
                delivery.keys());
        assertEquals("sendBatchSync", delivery.attempt(START, 3_000 * MS).call().method);
        assertEquals(-1, delivery.pauseAfter(new Result(0, "OK"), START, 0));
        assertEquals(List.of("A", "B", "C"), delivery.ids());
        assertEquals(List.of(), delivery.openIds());
    }

    @Test
    void errorsAreReportedPerMessage() {
        Delivery delivery = delivery(message("A", "a"), message("B", "b"), message("C", "c"));
        Result result =
                new Result(12, "not stored in time")
                        .setMessages(
                                List.of(
                                        new MessageResult(12),
                                        new MessageResult(0),
                                        new MessageResult(14).setMsg("no such topic")));
        var failed =
                assertThrows(
                        SendFailedException.class, () -> delivery.pauseAfter(result, START, 0));
        assertEquals(List.of("A", "C"), List.copyOf(failed.failures().keySet()));
        assertEquals(OptionalInt.of(14), failed.code());
        assertEquals("not stored in time", failed.failures().get("A").reason());
        assertTrue(failed.failures().get("A").outcomeUnknown());
        assertEquals(OptionalInt.of(14), failed.failures().get("C").code());
        assertFalse(failed.failures().get("C").outcomeUnknown());
        assertEquals(
                "sending to orders failed: not stored in time"
                        + " (message A and 1 others: may have been stored)",
                failed.getMessage());
    }

    @Test
    void lostAnswersMakeTheOutcomeUnknownUntilItIsKnown() {
        Delivery delivery = delivery(message("A", "a"));
        var lost = new ConnectionLostException("it broke", true, null);
        assertTrue(delivery.pauseAfterError(lost, true, START, 0) > 0);
        var failed =
                assertThrows(
                        SendFailedException.class,
                        () -> delivery.pauseAfterError(lost, false, START + 999 * MS, 0));
        assertTrue(failed.outcomeUnknown());
        assertEquals(OptionalInt.empty(), failed.code());

        Delivery unsent = delivery(message("A", "a"));
        var known =
                assertThrows(
                        SendFailedException.class,
                        () -> unsent.pauseAfterError(lost, false, START + 999 * MS, 0));
        assertFalse(known.outcomeUnknown());
        assertThrows(
                SendFailedException.class,
                () -> delivery(message("A", "a"))
                        .pauseAfterError(new ProtocolException("?", null), true, START, 0));
    }

    // ---- the order of calls --------------------------------------------------------------------

    private static final SendOrder.Key K = new SendOrder.Key("orders", false, 1);
    private static final SendOrder.Key OTHER = new SendOrder.Key("orders", false, 2);

    @Test
    void callsMadeBeforeAFailureOfTheirKeyAreHeldBack() {
        SendOrder order = new SendOrder();
        order.enter();
        long behind = order.enter();
        long other = order.enter();
        order.leave(List.of(K));
        long later = order.enter();
        assertTrue(order.heldBack(behind, List.of(OTHER, K)));
        assertFalse(order.heldBack(other, List.of(OTHER)));
        assertFalse(order.heldBack(later, List.of(K)));
        order.leave(List.of(K));
        assertTrue(order.heldBack(later, List.of(K)));
    }

    @Test
    void failuresAreForgottenWhenNoCallWaits() {
        SendOrder order = new SendOrder();
        order.enter();
        order.enter();
        order.leave(List.of(K));
        assertEquals(1, order.remembered());
        order.leave(List.of());
        assertEquals(0, order.remembered());
        assertNull(WireMessages.keyOf(wire(OutgoingMessage.to("t").body("").build())));
    }
}
