package io.github.orderlane.client.internal;

import io.github.orderlane.client.OutgoingMessage;
import io.github.orderlane.client.gen.producer.DelayMessage;
import io.github.orderlane.client.gen.producer.Message;
import java.nio.ByteBuffer;
import java.time.Instant;
import java.util.HashMap;
import java.util.Map;

/** Converts outgoing messages to their wire form. Pure. */
final class WireMessages {
    private static final int ADD = 1;
    private static final int ONCE = 2;

    private WireMessages() {}

    /** The message; {@code traced}: properties to add unless it has them. */
    static Message of(OutgoingMessage each, Map<String, String> traced, String token) {
        Map<String, String> properties = new HashMap<>(traced);
        properties.putAll(each.properties());
        properties.computeIfAbsent(OutgoingMessage.UNIQUE_ID, name -> ClientNames.messageId());
        Message message =
                new Message()
                        .setTopic(each.topic())
                        .setKey(each.key())
                        .setTags(each.tag())
                        .setPartitionId(each.queue().orElse(-1))
                        .setBody(ByteBuffer.wrap(each.body()))
                        .setVersion(ClientNames.version())
                        .setProperties(properties)
                        .setToken(token);
        if (each.queue().isEmpty() && each.shardingKey() != null) {
            message.setHashId(each.shardingKey().hashCode()); // as all producers of RocketMQ do
        }
        return message;
    }

    /** The same message for later delivery. */
    static DelayMessage delayed(Message message, OutgoingMessage each) {
        Instant due = Instant.now().plus(each.delay());
        Map<String, String> properties = new HashMap<>(message.getProperties());
        if (each.key() != null) {
            properties.put("KEYS", each.key()); // where a broker of RocketMQ keeps it
        }
        return new DelayMessage()
                .setTopic(message.getTopic())
                .setBody(message.bufferForBody())
                .setTags(message.getTags())
                .setAction(ADD)
                .setDmsgtype(ONCE)
                .setTimestamp(due.getEpochSecond() + (due.getNano() > 0 ? 1 : 0))
                .setUuid(idOf(message))
                .setVersion(message.getVersion())
                .setProperties(properties)
                .setToken(message.getToken());
    }

    static String idOf(Message message) {
        return message.getProperties().get(OutgoingMessage.UNIQUE_ID);
    }

    /** Its scope of order; null: unordered. */
    static SendOrder.Key keyOf(Message message) {
        if (message.isSetHashId()) {
            return new SendOrder.Key(message.getTopic(), false, message.getHashId());
        }
        int queue = message.getPartitionId();
        return queue < 0 ? null : new SendOrder.Key(message.getTopic(), true, queue);
    }

    /** An upper estimate of its size on the wire. */
    static long size(Message message) {
        long size = message.bufferForBody().remaining() + 128L + text(message.getTopic());
        size += text(message.getKey()) + text(message.getTags()) + text(message.getToken());
        for (Map.Entry<String, String> each : message.getProperties().entrySet()) {
            size += text(each.getKey()) + text(each.getValue());
        }
        return size;
    }

    private static long text(String text) {
        return text == null ? 0 : 4L * text.length() + 8;
    }
}
