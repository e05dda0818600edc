package io.github.orderlane.client.conformance;

import com.google.gson.JsonNull;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import io.github.orderlane.client.ClientBuilder;
import io.github.orderlane.client.OrderlaneConsumer;
import io.github.orderlane.client.Tls;
import java.io.IOException;
import java.lang.reflect.Proxy;
import java.nio.file.Path;
import java.time.Duration;
import java.util.function.Consumer;

/**
 * Wraps the client so that the cases of tests/conformance/clients can drive it, as the README there
 * specifies.
 */
public final class ConformanceProgram {
    private ConformanceProgram() {}

    public static void main(String[] arguments) throws Exception {
        JsonObject options = JsonParser.parseString(arguments[0]).getAsJsonObject();
        String mode = options.has("mode") ? options.get("mode").getAsString() : "consume";
        int code = 0;
        switch (mode) {
            case "produce" -> {
                WarmUp.sending();
                PlainCalls.produce(options);
            }
            case "oneshot" -> PlainCalls.oneshot(options);
            default -> code = consume(options);
        }
        Runtime.getRuntime().halt(code); // even if a handler cannot be stopped
    }

    private static int consume(JsonObject options) throws Exception {
        HistoryFile history = new HistoryFile(options);
        BodyWork work = new BodyWork(options, history);
        OrderlaneConsumer consumer = consumer(options, work);
        WarmUp.consuming();
        onSigterm(consumer::stop);
        history.start();
        Throwable failure = null;
        String form = options.has("form") ? options.get("form").getAsString() : "handler";
        if (form.equals("batches")) {
            consumer.startBatches(work::handleBatch);
        } else { // serial: a handler with concurrency 1
            consumer.start(work::handle);
        }
        try {
            consumer.awaitTermination();
        } catch (RuntimeException error) {
            failure = error;
        }
        history.stop();
        JsonObject stopped = Lines.event("stopped");
        stopped.addProperty("handled", work.handled.get());
        stopped.add("error", failure == null ? JsonNull.INSTANCE : Lines.error(failure));
        Lines.say(stopped);
        return failure == null ? 0 : 1;
    }

    private static OrderlaneConsumer consumer(JsonObject options, BodyWork work)
            throws IOException {
        OrderlaneConsumer.Builder builder =
                OrderlaneConsumer.builder(options.get("servers").getAsString())
                        .group(options.get("group").getAsString())
                        .observer(work);
        configure(builder, options);
        if (options.has("topics")) {
            options.getAsJsonArray("topics").forEach(topic -> builder.topic(topic.getAsString()));
        }
        number(options, "concurrency", value -> builder.concurrency(value.intValue()));
        number(options, "prefetch", value -> builder.prefetch(value.intValue()));
        number(options, "max_run", value -> builder.maxRun(value.intValue()));
        number(options, "ack_linger_ms", ms -> builder.ackLinger(Duration.ofMillis(ms)));
        number(options, "drain_timeout_ms", ms -> builder.drainTimeout(Duration.ofMillis(ms)));
        if (options.has("client_id")) {
            builder.clientId(options.get("client_id").getAsString());
        }
        return builder.build();
    }

    /** Sets options of all clients. */
    static void configure(ClientBuilder<?> builder, JsonObject options) throws IOException {
        number(options, "request_timeout_ms", ms -> builder.requestTimeout(Duration.ofMillis(ms)));
        if (options.has("token")) {
            builder.token(options.get("token").getAsString());
        }
        if (options.has("tls")) {
            JsonObject files = options.getAsJsonObject("tls");
            Tls.Builder tls = Tls.builder();
            if (files.has("ca")) {
                tls.authorities(Path.of(files.get("ca").getAsString()));
            }
            if (files.has("cert")) {
                tls.certificate(
                        Path.of(files.get("cert").getAsString()),
                        Path.of(files.get(files.has("key") ? "key" : "cert").getAsString()));
            }
            if (files.has("server_name")) {
                tls.serverName(files.get("server_name").getAsString());
            }
            Tls built = tls.build();
            WarmUp.securing(built);
            builder.tls(built);
        }
    }

    private static void number(JsonObject options, String name, Consumer<Long> set) {
        if (options.has(name)) {
            set.accept(options.get(name).getAsLong());
        }
    }

    /**
     * By reflection: the compiler warns of the only class that does it, which cannot be disabled.
     */
    private static void onSigterm(Runnable action) throws IOException {
        try {
            Class<?> signal = Class.forName("sun.misc.Signal");
            Class<?> handler = Class.forName("sun.misc.SignalHandler");
            Object proxy =
                    Proxy.newProxyInstance(
                            handler.getClassLoader(),
                            new Class<?>[] {handler},
                            (self, method, given) -> {
                                action.run();
                                return null;
                            });
            signal.getMethod("handle", signal, handler)
                    .invoke(null, signal.getConstructor(String.class).newInstance("TERM"), proxy);
        } catch (ReflectiveOperationException error) {
            throw new IOException("SIGTERM cannot be handled", error);
        }
    }
}
