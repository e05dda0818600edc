package io.github.orderlane.client.conformance;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParseException;
import com.google.gson.JsonParser;
import io.github.orderlane.client.KeyBatch;
import io.github.orderlane.client.Message;
import io.github.orderlane.client.Observer;
import io.github.orderlane.client.OrderlaneException;
import io.github.orderlane.client.Outcome;
import java.time.Duration;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;

/** A handler that follows the instructions in the message's body. */
final class BodyWork implements Observer {
    final AtomicInteger handled = new AtomicInteger();
    private final boolean quiet;
    private final double leastMs;
    private final double mostMs;
    private final HistoryFile history;

    BodyWork(JsonObject options, HistoryFile history) {
        this.history = history;
        quiet = options.has("quiet") && options.get("quiet").getAsBoolean();
        boolean ranged = options.has("work_ms");
        leastMs = ranged ? options.getAsJsonArray("work_ms").get(0).getAsDouble() : 0;
        mostMs = ranged ? options.getAsJsonArray("work_ms").get(1).getAsDouble() : 0;
    }

    // ---- output lines -------------------------------------------------------------------------

    @Override
    public void onHandleStart(Message message) {
        history.handleStart(message);
        if (!quiet) {
            Lines.say(Lines.message(message, Lines.event("start")));
        }
    }

    @Override
    public void onHandleEnd(Message message, Outcome outcome) {
        history.handleEnd(message, outcome.kind());
        if (outcome instanceof Outcome.Ok) {
            handled.incrementAndGet();
        }
        if (!quiet) {
            JsonObject line = Lines.place(message, Lines.event("end"));
            line.addProperty("outcome", outcome.kind());
            Lines.say(line);
        }
    }

    @Override
    public void onError(OrderlaneException error) {
        Lines.sayError(error);
    }

    // ---- handlers -----------------------------------------------------------------------------

    Outcome handleBatch(KeyBatch batch) throws Exception {
        for (Message message : batch) {
            Outcome outcome = handle(message);
            if (message.leaseLost()) {
                return Outcome.defer();
            }
            if (!(outcome instanceof Outcome.Ok)) {
                return outcome;
            }
            batch.ok(message);
        }
        return Outcome.ok();
    }

    Outcome handle(Message message) throws Exception {
        if (quiet && mostMs <= 0) {
            return Outcome.ok();
        }
        JsonObject body = body(message);
        if (body.has("block_ms")) {
            sleepThroughAll(body.get("block_ms").getAsLong() * 1_000_000);
        }
        work(message, body);
        int times = body.has("times") ? body.get("times").getAsInt() : Integer.MAX_VALUE;
        String asked = body.has("do") ? body.get("do").getAsString() : "ok";
        String reason = body.has("reason") ? body.get("reason").getAsString() : "";
        return switch (message.attempt() <= times ? asked : "ok") {
            case "ok" -> Outcome.ok();
            case "retry" -> retry(body);
            case "reject" -> Outcome.reject(reason);
            case "defer" -> Outcome.defer();
            // A future would not compile, so null is the only result without work.
            case "unrun", "forget" -> null;
            default -> throw new IllegalStateException(reason);
        };
    }

    static Outcome retry(JsonObject asked) {
        if (!asked.has("after_ms") || asked.get("after_ms").isJsonNull()) {
            return Outcome.retry();
        }
        return Outcome.retryAfter(Duration.ofMillis(asked.get("after_ms").getAsLong()));
    }

    private static JsonObject body(Message message) {
        if (message.body().length > 1 && message.body()[0] == '{') {
            try {
                JsonElement body = JsonParser.parseString(message.text());
                if (body.isJsonObject()) {
                    return body.getAsJsonObject();
                }
            } catch (JsonParseException none) {
                return new JsonObject();
            }
        }
        return new JsonObject();
    }

    private void work(Message message, JsonObject body) throws InterruptedException {
        double ms = leastMs;
        if (body.has("work_ms")) {
            ms = body.get("work_ms").getAsDouble();
        } else if (mostMs > leastMs) {
            ms = ThreadLocalRandom.current().nextDouble(leastMs, mostMs);
        }
        boolean untilLost = body.has("until");
        if (quiet && ms <= 0 && !untilLost) {
            return;
        }
        CountDownLatch told = new CountDownLatch(1);
        message.onLeaseLost(
                () -> {
                    JsonObject line = Lines.place(message, Lines.event("lost"));
                    line.remove("offset");
                    Lines.say(line);
                    told.countDown();
                });
        long ns = untilLost ? Long.MAX_VALUE / 2 : (long) (ms * 1e6);
        if (body.has("stubborn") && body.get("stubborn").getAsBoolean()) {
            sleepThroughAll(ns);
        } else {
            try {
                told.await(ns, TimeUnit.NANOSECONDS);
            } catch (InterruptedException error) {
                if (!message.leaseLost()) {
                    throw error; // the drain timed out
                }
            }
        }
    }

    private static void sleepThroughAll(long ns) {
        AtomicBoolean never = new AtomicBoolean();
        long end = System.nanoTime() + ns;
        while (!never.get() && System.nanoTime() < end) {
            try {
                TimeUnit.NANOSECONDS.sleep(end - System.nanoTime());
            } catch (InterruptedException notice) {
                // ignored
            }
        }
    }
}
