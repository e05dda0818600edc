package orderlane.client;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Objects;
import java.util.OptionalInt;
import orderlane.client.internal.JsonPath;
import orderlane.client.internal.Texts;
import orderlane.client.internal.Times;

/**
 * One message to send. Which queue it goes to, and with that what it keeps its order with: a queue
 * that was named; else the sharding key; else the value at the sharding path; else the key; with
 * none of them the queues take turns.
 */
public final class OutgoingMessage {
    /** The property that holds a message's unique id, in RocketMQ and here. */
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

    /** Begins a message to a topic. */
    public static Builder to(String topic) {
        return new Builder(topic);
    }

    public String topic() {
        return topic;
    }

    public byte[] body() {
        return body;
    }

    /** Null: none. */
    public String key() {
        return key;
    }

    /** What its queue is chosen by, without blanks around it; null: nothing. */
    public String shardingKey() {
        return shardingKey;
    }

    /** The queue named: its place in the order by broker name, then id; or {@link #ANY_QUEUE}. */
    public OptionalInt queue() {
        return queue == null ? OptionalInt.empty() : OptionalInt.of(queue);
    }

    /** Null: none. */
    public String tag() {
        return tag;
    }

    public Map<String, String> properties() {
        return properties;
    }

    /** Null: none. */
    public Duration delay() {
        return delay;
    }

    /** Collects what makes a message. */
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

        /** The body; has to be given. Not copied. */
        public Builder body(byte[] bytes) {
            body = Objects.requireNonNull(bytes);
            return this;
        }

        /** The body as text; goes as UTF-8. */
        public Builder body(String text) {
            body = Texts.checked("body", text).getBytes(StandardCharsets.UTF_8);
            return this;
        }

        /** By which it can be found, and which orders it in groups that use KEY. */
        public Builder key(String value) {
            key = Texts.checked("key", value);
            return this;
        }

        /**
         * All messages of one sharding key go to one queue, in the order of sending. Blanks around a
         * key (U+0000 to U+0020) are no part of it.
         */
        public Builder shardingKey(String value) {
            shardingKey = Texts.checked("shardingKey", value);
            return this;
        }

        /**
         * Takes the sharding key out of the JSON of the body: {@code $.a.b[0]} or
         * {@code $['a']}. A text counts without the blanks around it, anything else as canonical
         * JSON; where there is nothing, or null, the message has no sharding key. Throws
         * IllegalArgumentException for other paths, and {@link #build} for a body that is no JSON.
         */
        public Builder shardingPath(String path) {
            shardingPath = JsonPath.compile(path);
            return this;
        }

        /**
         * Names the queue: its place, from 0, in the order by broker name, then id. A message for a
         * place that its topic does not have is refused, with code 11.
         */
        public Builder queue(int place) {
            if (place < 0) {
                throw new IllegalArgumentException(
                        "queue is " + place + ": expected 0 or more; anyQueue() takes any");
            }
            queue = place;
            return this;
        }

        /** Any queue will do; its key chooses none. */
        public Builder anyQueue() {
            queue = ANY_QUEUE;
            return this;
        }

        /** By which groups may filter. */
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

        /** Its unique id; default: one is made. Sent again, a message should have the same. */
        public Builder messageId(String id) {
            return property(UNIQUE_ID, id);
        }

        /**
         * Not to be delivered before so much time has passed. A proxy that does not serve delays
         * answers with code 18.
         */
        public Builder delay(Duration time) {
            delay = Times.checked("delay", time);
            return this;
        }

        /** The message. */
        public OutgoingMessage build() {
            if (body == null) {
                throw new IllegalArgumentException(
                        "a message to " + topic + " has no body: give one, empty if need be");
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
