package io.github.orderlane.client.conformance;

import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonElement;
import com.google.gson.JsonNull;
import com.google.gson.JsonObject;
import io.github.orderlane.client.ConnectionLostException;
import io.github.orderlane.client.Message;
import io.github.orderlane.client.OrderlaneException;
import io.github.orderlane.client.ProxyFaultException;
import io.github.orderlane.client.RefusedException;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.Optional;

/** Writes the conformance program's lines to its driver. */
final class Lines {
    static final Gson JSON = new GsonBuilder().serializeNulls().disableHtmlEscaping().create();

    private static final OutputStream OUT = new FileOutputStream(FileDescriptor.out);

    private Lines() {}

    static JsonObject event(String name) {
        JsonObject event = new JsonObject();
        event.addProperty("e", name);
        return event;
    }

    /** Writes one line at once. */
    static synchronized void say(JsonObject event) {
        try {
            OUT.write((JSON.toJson(event) + "\n").getBytes(StandardCharsets.UTF_8));
            OUT.flush();
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    static JsonObject error(Throwable error) {
        JsonObject fields = new JsonObject();
        boolean known = error instanceof OrderlaneException;
        fields.addProperty("kind", kind(error));
        fields.add(
                "code",
                error instanceof RefusedException refused
                        ? JSON.toJsonTree(refused.code())
                        : JsonNull.INSTANCE);
        fields.addProperty("retriable", known && ((OrderlaneException) error).retriable());
        fields.addProperty("text", String.valueOf(error.getMessage()));
        return fields;
    }

    private static String kind(Throwable error) {
        if (error instanceof ConnectionLostException) {
            return "connection";
        }
        if (error instanceof RefusedException) {
            return "refused";
        }
        return error instanceof ProxyFaultException ? "fault" : "protocol";
    }

    static void sayError(Throwable error) {
        JsonObject line = event("error");
        error(error).entrySet().forEach(each -> line.add(each.getKey(), each.getValue()));
        say(line);
    }

    /** Adds a message's fields to a line. */
    static JsonObject message(Message message, JsonObject line) {
        line.addProperty("topic", message.topic());
        line.addProperty("queue", message.queue());
        line.addProperty("offset", message.offset());
        line.addProperty("lease", message.leaseId());
        line.add("key", text(message.key()));
        line.add("order_key", text(message.orderKey().map(Lines::keyText)));
        line.add("tag", text(message.tag()));
        line.add("properties", JSON.toJsonTree(message.properties()));
        line.addProperty("attempt", message.attempt());
        line.add(
                "born_at_ms",
                message.bornAt()
                        .map(born -> JSON.toJsonTree(born.toEpochMilli()))
                        .orElse(JsonNull.INSTANCE));
        line.add("message_id", text(message.messageId()));
        line.addProperty("left_ms", message.timeLeft().toMillis());
        line.addProperty("body", message.text());
        return line;
    }

    static JsonObject place(Message message, JsonObject line) {
        line.addProperty("lease", message.leaseId());
        line.addProperty("queue", message.queue());
        line.addProperty("offset", message.offset());
        return line;
    }

    static JsonElement text(Optional<String> text) {
        return text.map(JSON::toJsonTree).orElse(JsonNull.INSTANCE);
    }

    /** A key in readable form: text, or 0x and hex if it is not text. */
    static String keyText(byte[] key) {
        try {
            return StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(key)).toString();
        } catch (CharacterCodingException error) {
            return "0x" + HexFormat.of().formatHex(key);
        }
    }
}
