package io.github.orderlane.client;

import io.github.orderlane.client.internal.JsonPath;
import io.github.orderlane.client.internal.Texts;
import io.github.orderlane.client.internal.Times;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Objects;
import java.util.OptionalInt;

/**
 * One message to send. Its queue, and so the messages it keeps order with, is chosen by a queue
 * number, else the sharding key, else the value at the sharding path, else the key; without any of
 * them, round robin.
 */
public final class OutgoingMessage {
    /** The property that holds a message's unique id, as in RocketMQ. */
    public static final String UNIQUE_ID = "UNIQ_KEY";

    /** {@link #queue()} of a message that may go to any queue. */
    public static final int ANY_QUEUE = -2;

    private final String topic;
    private final byte[] body;
    private final String key;
    private final String shardingKey;
    private final Integer queue;
    private final String tag;
    private final Map<String, String> properties;
    private final Duration delay;

    private OutgoingMessage(Builder builder, String shardingKey) {
        this.topic = builder.topic;
        this.body = builder.body;
        this.key = builder.key;
        this.shardingKey = shardingKey;
        this.queue = builder.queue;
        this.tag = builder.tag;
        this.properties = Map.copyOf(builder.properties);
        this.delay = builder.delay;
    }

    /** Starts a message to a topic. */
    public static Builder to(String topic) {
        return new Builder(topic);
    }

    public String topic() {
        return topic;
    }

    public byte[] body() {
        return body;
    }

    /** The message key, or null. */
    public String key() {
        return key;
    }

    /** The key that chooses the queue, without surrounding blanks; null: none. */
    public String shardingKey() {
        return shardingKey;
    }

    /**
     * The chosen queue: its position in the order by broker name, then id; or {@link #ANY_QUEUE}.
     */
    public OptionalInt queue() {
        return queue == null ? OptionalInt.empty() : OptionalInt.of(queue);
    }

    /** The tag, or null. */
    public String tag() {
        return tag;
    }

    public Map<String, String> properties() {
        return properties;
    }

    /** The delay, or null. */
    public Duration delay() {
        return delay;
    }

    /** Fields of a message. */
    public static final class Builder {
        private final String topic;
        private final Map<String, String> properties = new LinkedHashMap<>();
        private byte[] body;
        private String key;
        private String shardingKey;
        private JsonPath shardingPath;
        private Integer queue;
        private String tag;
        private Duration delay;

        private Builder(String topic) {
            if (topic.isEmpty()) {
                throw new IllegalArgumentException("topic is empty: expected the name of a topic");
            }
            this.topic = Texts.checked("topic", topic);
        }

        /** The body; required. Not copied. */
        public Builder body(byte[] bytes) {
            body = Objects.requireNonNull(bytes);
            return this;
        }

        /** The body as text, sent as UTF-8. */
        public Builder body(String text) {
            body = Texts.checked("body", text).getBytes(StandardCharsets.UTF_8);
            return this;
        }

        /** The message key: for searches, and the order key in groups that use KEY. */
        public Builder key(String value) {
            key = Texts.checked("key", value);
            return this;
        }

        /**
         * Sends all messages of one sharding key to one queue, in the order of sending. Surrounding
         * blanks (U+0000 to U+0020) are not part of a key.
         */
        public Builder shardingKey(String value) {
            shardingKey = Texts.checked("shardingKey", value);
            return this;
        }

        /**
         * Reads the sharding key from the JSON body: {@code $.a.b[0]} or {@code $['a']}. A string
         * counts without surrounding blanks, any other value as canonical JSON. If the value is
         * missing or null, the message has no sharding key. Throws IllegalArgumentException for an
         * invalid path, and in {@link #build} for a body that is not JSON.
         */
        public Builder shardingPath(String path) {
            shardingPath = JsonPath.compile(path);
            return this;
        }

        /**
         * Chooses the queue by its position, from 0, in the order by broker name, then id. A
         * message for a position that the topic does not have is refused with code 11.
         */
        public Builder queue(int place) {
            if (place < 0) {
                throw new IllegalArgumentException(
                        "queue is " + place + ": expected 0 or more; anyQueue() takes any");
            }
            queue = place;
            return this;
        }

        /** Chooses any queue, even for a message with a key. */
        public Builder anyQueue() {
            queue = ANY_QUEUE;
            return this;
        }

        /** Lets groups filter. */
        public Builder tag(String value) {
            tag = Texts.checked("tag", value);
            return this;
        }

        /** Adds a property. */
        public Builder property(String name, String value) {
            properties.put(Texts.checked("property", name), Texts.checked(name, value));
            return this;
        }

        /** Adds properties. */
        public Builder properties(Map<String, String> values) {
            values.forEach(this::property);
            return this;
        }

        /** Sets the unique id; default: generated. A message sent again should keep its id. */
        public Builder messageId(String id) {
            return property(UNIQUE_ID, id);
        }

        /**
         * Postpones the delivery by this time, at most 10,000 days. A proxy that does not support
         * delays answers with code 18.
         */
        public Builder delay(Duration time) {
            if (Times.checked("delay", time).compareTo(Times.LONGEST) > 0) {
                throw new IllegalArgumentException(
                        "delay is " + time + ": expected at most 10,000 days");
            }
            delay = time;
            return this;
        }

        /** Builds the message. */
        public OutgoingMessage build() {
            if (body == null) {
                throw new IllegalArgumentException(
                        "a message to " + topic + " has no body: set one, even if it is empty");
            }
            String sharding = shardingKey;
            if (sharding == null && shardingPath != null && queue == null) {
                sharding = shardingPath.textIn(body).orElse(null);
            }
            if (sharding == null && key != null && !key.trim().isEmpty()) {
                sharding = key;
            }
            return new OutgoingMessage(this, sharding == null ? null : sharding.trim());
        }
    }
}
