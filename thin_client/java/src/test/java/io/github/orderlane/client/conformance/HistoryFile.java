package io.github.orderlane.client.conformance;

import com.google.gson.JsonObject;
import io.github.orderlane.client.Message;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;

/** The handlers' events in the format of docs/history.md: one line per event, flushed to disk. */
final class HistoryFile {
    private final FileChannel file; // null: no history
    private final String node;
    private final String group;
    private final String consumer;
    private final long clockOffsetNs;

    HistoryFile(JsonObject options) throws IOException {
        node = options.has("node") ? options.get("node").getAsString() : "java";
        group = options.get("group").getAsString();
        consumer = options.has("client_id") ? options.get("client_id").getAsString() : "";
        clockOffsetNs =
                options.has("clock_offset_ns") ? options.get("clock_offset_ns").getAsLong() : 0;
        if (!options.has("history")) {
            file = null;
            return;
        }
        Path path = Path.of(options.get("history").getAsString());
        boolean torn = isTorn(path);
        file = FileChannel.open(path, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
        if (torn) {
            file.write(ByteBuffer.wrap(new byte[] {'\n'}));
        }
    }

    /** Records the start of this process, which may now be stopped. */
    void start() {
        if (file == null) {
            return;
        }
        JsonObject start = new JsonObject();
        start.addProperty("pid", ProcessHandle.current().pid());
        start.add("parts", Lines.JSON.toJsonTree(new String[] {"consumer"}));
        write("start", start);
    }

    private static boolean isTorn(Path path) throws IOException {
        if (!path.toFile().exists()) {
            return false;
        }
        try (RandomAccessFile old = new RandomAccessFile(path.toFile(), "r")) {
            if (old.length() == 0) {
                return false;
            }
            old.seek(old.length() - 1);
            return old.read() != '\n';
        }
    }

    void handleStart(Message message) {
        if (file != null) {
            write("handle_start", fields(message));
        }
    }

    void handleEnd(Message message, String outcome) {
        if (file != null) {
            JsonObject fields = fields(message);
            fields.addProperty("outcome", outcome);
            write("handle_end", fields);
        }
    }

    void stop() {
        if (file != null) {
            write("stop", new JsonObject());
        }
    }

    private JsonObject fields(Message message) {
        JsonObject fields = new JsonObject();
        fields.addProperty("group", group);
        fields.addProperty("consumer", consumer);
        fields.addProperty("topic", message.topic());
        fields.addProperty("queue", message.queue().replaceFirst("#.*", ""));
        fields.addProperty("offset", message.offset());
        fields.add("msg", Lines.text(message.messageId()));
        fields.add("order", Lines.text(message.orderKey().map(Lines::keyText)));
        fields.addProperty("attempt", message.attempt());
        fields.addProperty("lease", message.leaseId());
        return fields;
    }

    /** Writes lines in the order of their times. */
    private synchronized void write(String name, JsonObject fields) {
        JsonObject event = Lines.event(name);
        event.addProperty("t_ns", System.nanoTime() + clockOffsetNs);
        event.addProperty("wall_ms", System.currentTimeMillis());
        event.addProperty("node", node);
        fields.entrySet().forEach(each -> event.add(each.getKey(), each.getValue()));
        byte[] line = (Lines.JSON.toJson(event) + "\n").getBytes(StandardCharsets.UTF_8);
        try {
            file.write(ByteBuffer.wrap(line));
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }
}
