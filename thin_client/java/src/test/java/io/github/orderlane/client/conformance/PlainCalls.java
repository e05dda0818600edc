package io.github.orderlane.client.conformance;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonNull;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import io.github.orderlane.client.Message;
import io.github.orderlane.client.OrderlaneException;
import io.github.orderlane.client.OrderlaneProducer;
import io.github.orderlane.client.OrderlanePuller;
import io.github.orderlane.client.Outcome;
import io.github.orderlane.client.OutgoingMessage;
import io.github.orderlane.client.SendFailedException;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.OptionalInt;

/** The modes {@code produce} and {@code oneshot}: each input line is one call. */
final class PlainCalls {
    private PlainCalls() {}

    private interface Calls {
        void call(JsonObject asked);
    }

    private static void serve(Calls calls) throws IOException {
        BufferedReader input =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            calls.call(JsonParser.parseString(line).getAsJsonObject());
        }
        JsonObject stopped = Lines.event("stopped");
        stopped.add("error", JsonNull.INSTANCE);
        Lines.say(stopped);
    }

    private static boolean has(JsonObject object, String name) {
        return object.has(name) && !object.get(name).isJsonNull();
    }

    // ---- produce ------------------------------------------------------------------------------

    static void produce(JsonObject options) throws IOException {
        Map<Long, OrderlaneProducer> producers = new HashMap<>(); // by timeout
        // Stands for a child process, which makes its own producer: a JVM cannot fork.
        Map<Long, OrderlaneProducer> ofChild = new HashMap<>();
        serve(
                asked -> {
                    if (asked.get("op").getAsString().equals("hash")) {
                        JsonObject line = Lines.event("hash");
                        line.addProperty("hash", asked.get("key").getAsString().hashCode());
                        Lines.say(line);
                        return;
                    }
                    boolean timed = has(asked, "timeout_ms");
                    long ms = timed ? asked.get("timeout_ms").getAsLong() : 10_000;
                    OrderlaneProducer producer =
                            (has(asked, "process") ? ofChild : producers)
                                    .computeIfAbsent(ms, any -> producer(options, any));
                    JsonObject line = Lines.event("sent");
                    line.add("results", sent(producer, asked));
                    Lines.say(line);
                });
        producers.values().forEach(OrderlaneProducer::close);
        ofChild.values().forEach(OrderlaneProducer::close);
    }

    private static OrderlaneProducer producer(JsonObject options, long timeoutMs) {
        OrderlaneProducer.Builder builder =
                OrderlaneProducer.builder(options.get("servers").getAsString())
                        .sendTimeout(Duration.ofMillis(timeoutMs));
        try {
            ConformanceProgram.configure(builder, options);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        return builder.build();
    }

    private static JsonArray sent(OrderlaneProducer producer, JsonObject asked) {
        JsonArray results = new JsonArray();
        List<JsonObject> messages = new ArrayList<>();
        asked.getAsJsonArray("messages").forEach(each -> messages.add(each.getAsJsonObject()));
        if (has(asked, "batch") && asked.get("batch").getAsBoolean()) {
            send(producer, messages, results);
        } else {
            messages.forEach(each -> send(producer, List.of(each), results));
        }
        return results;
    }

    private static void send(
            OrderlaneProducer producer, List<JsonObject> messages, JsonArray results) {
        try {
            List<OutgoingMessage> outgoing = messages.stream().map(PlainCalls::outgoing).toList();
            List<String> ids = List.of();
            Map<String, SendFailedException.Failure> failures = Map.of();
            try {
                ids =
                        outgoing.size() == 1
                                ? List.of(producer.send(outgoing.get(0)))
                                : producer.sendBatch(outgoing);
            } catch (SendFailedException failed) {
                failures = failed.failures();
                ids = failed.messageIds();
            }
            for (String id : ids) {
                SendFailedException.Failure failure = failures.get(id);
                results.add(
                        failure == null
                                ? result(id, null, OptionalInt.empty(), false)
                                : result(
                                        id,
                                        failure.reason(),
                                        failure.code(),
                                        failure.outcomeUnknown()));
            }
        } catch (IllegalArgumentException refused) {
            JsonObject result = result(null, refused.getMessage(), OptionalInt.empty(), false);
            messages.forEach(each -> results.add(result));
        }
    }

    private static JsonObject result(String id, String error, OptionalInt code, boolean unknown) {
        JsonObject result = new JsonObject();
        result.addProperty("message_id", id);
        result.addProperty("error", error);
        result.add(
                "code",
                code.isPresent() ? Lines.JSON.toJsonTree(code.getAsInt()) : JsonNull.INSTANCE);
        result.addProperty("unknown", unknown);
        return result;
    }

    private static OutgoingMessage outgoing(JsonObject asked) {
        OutgoingMessage.Builder message =
                OutgoingMessage.to(asked.get("topic").getAsString())
                        .body(asked.get("body").getAsString());
        for (Map.Entry<String, JsonElement> each : asked.entrySet()) {
            JsonElement value = each.getValue();
            if (value.isJsonNull()) {
                continue;
            }
            switch (each.getKey()) {
                case "key" -> message.key(value.getAsString());
                case "sharding_key" -> message.shardingKey(value.getAsString());
                case "sharding_path" -> message.shardingPath(value.getAsString());
                case "queue" -> {
                    if (value.getAsJsonPrimitive().isNumber()) {
                        message.queue(value.getAsInt());
                    } else {
                        message.anyQueue();
                    }
                }
                case "tag" -> message.tag(value.getAsString());
                case "properties" ->
                        value.getAsJsonObject()
                                .entrySet()
                                .forEach(
                                        property ->
                                                message.property(
                                                        property.getKey(),
                                                        property.getValue().getAsString()));
                case "delay_ms" -> message.delay(Duration.ofMillis(value.getAsLong()));
                default -> {} // topic and body
            }
        }
        return message.build();
    }

    // ---- single calls -------------------------------------------------------------------------

    static void oneshot(JsonObject options) throws IOException {
        OrderlanePuller.Builder builder =
                OrderlanePuller.builder(options.get("servers").getAsString())
                        .group(options.get("group").getAsString());
        ConformanceProgram.configure(builder, options);
        if (has(options, "topics")) {
            options.getAsJsonArray("topics").forEach(topic -> builder.topic(topic.getAsString()));
        }
        if (has(options, "client_id")) {
            builder.clientId(options.get("client_id").getAsString());
        }
        Map<Long, Message> pulled = new HashMap<>();
        try (OrderlanePuller puller = builder.build()) {
            serve(asked -> answer(puller, pulled, asked));
        }
    }

    private static void answer(
            OrderlanePuller puller, Map<Long, Message> pulled, JsonObject asked) {
        try {
            switch (asked.get("op").getAsString()) {
                case "pull" -> {
                    JsonArray messages = new JsonArray();
                    Duration wait = Duration.ofMillis(asked.get("wait_ms").getAsLong());
                    for (Message message : puller.pull(asked.get("max").getAsInt(), wait)) {
                        pulled.put(message.leaseId(), message);
                        messages.add(Lines.message(message, new JsonObject()));
                    }
                    JsonObject line = Lines.event("pulled");
                    line.add("messages", messages);
                    Lines.say(line);
                }
                case "settle" -> {
                    JsonObject line = Lines.event("settled");
                    Message message = pulled.get(asked.get("lease").getAsLong());
                    line.addProperty("held", puller.settle(message, outcome(asked)));
                    Lines.say(line);
                }
                default -> {
                    JsonObject line = Lines.event("extended");
                    Message message = pulled.get(asked.get("lease").getAsLong());
                    Duration time = Duration.ofMillis(asked.get("ms").getAsLong());
                    line.addProperty("held", puller.extend(message, time));
                    Lines.say(line);
                }
            }
        } catch (OrderlaneException error) {
            Lines.sayError(error);
        }
    }

    private static Outcome outcome(JsonObject asked) {
        return switch (has(asked, "do") ? asked.get("do").getAsString() : "ok") {
            case "retry" -> BodyWork.retry(asked);
            case "reject" ->
                    Outcome.reject(has(asked, "reason") ? asked.get("reason").getAsString() : "");
            case "defer" -> Outcome.defer();
            default -> Outcome.ok();
        };
    }
}
