import com.alibaba.fastjson.JSONObject;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.MessageQueueSelector;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByRandom;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageQueue;

/** Sends in all ways of the producer; returns the result of each message. */
final class ProducerRole implements Driver.Role {
    private final DefaultMQProducer producer;

    ProducerRole(JSONObject command) throws Exception {
        // Read when a producer is created; the only way in 4.9.
        System.setProperty(
                "rocketmq.message.compressType",
                command.containsKey("compress") ? command.getString("compress") : "ZLIB");
        producer = new DefaultMQProducer(command.getString("group"), Driver.hook(command));
        Driver.configure(producer, command);
        producer.setSendMsgTimeout(10_000);
        if (command.containsKey("maxBytes")) {
            producer.setMaxMessageSize(command.getIntValue("maxBytes"));
        }
        producer.start();
    }

    @Override
    public Object run(String op, JSONObject command) throws Exception {
        if (op.equals("queues")) {
            List<Integer> queues = new ArrayList<>();
            producer.fetchPublishMessageQueues(command.getString("topic"))
                    .forEach(queue -> queues.add(queue.getQueueId()));
            return queues;
        }
        if (op.equals("recall")) {
            return recall(command);
        }
        List<Message> messages = new ArrayList<>();
        List<String> keys = new ArrayList<>();
        for (Object each : command.getJSONArray("messages")) {
            messages.add(message(command.getString("topic"), (JSONObject) each));
            keys.add(((JSONObject) each).getString("key"));
        }
        MessageQueueSelector selector = selector(command.getString("select"));
        switch (command.getString("how")) {
            case "batch":
                return batch(messages, command);
            case "async":
                return async(messages, keys, selector);
            case "oneway":
                return oneway(messages, keys, selector);
            default:
                return sync(messages, keys, selector);
        }
    }

    private List<Object> sync(List<Message> messages, List<String> keys, MessageQueueSelector by) {
        List<Object> results = new ArrayList<>();
        for (int i = 0; i < messages.size(); i++) {
            try {
                results.add(
                        result(
                                by == null
                                        ? producer.send(messages.get(i))
                                        : producer.send(messages.get(i), by, keys.get(i))));
            } catch (Exception error) {
                results.add(Driver.describe(error));
            }
        }
        return results;
    }

    /** Sends all at once; the answers may arrive in any order. */
    private Object async(List<Message> messages, List<String> keys, MessageQueueSelector by)
            throws Exception {
        Object[] results = new Object[messages.size()];
        CountDownLatch open = new CountDownLatch(results.length);
        for (int i = 0; i < results.length; i++) {
            int place = i;
            SendCallback callback =
                    new SendCallback() {
                        @Override
                        public void onSuccess(SendResult sent) {
                            results[place] = result(sent);
                            open.countDown();
                        }

                        @Override
                        public void onException(Throwable error) {
                            results[place] = Driver.describe(error);
                            open.countDown();
                        }
                    };
            if (by == null) {
                producer.send(messages.get(i), callback);
            } else {
                producer.send(messages.get(i), by, keys.get(i), callback);
            }
        }
        open.await();
        return results;
    }

    private Object oneway(List<Message> messages, List<String> keys, MessageQueueSelector by)
            throws Exception {
        for (int i = 0; i < messages.size(); i++) {
            if (by == null) {
                producer.sendOneway(messages.get(i));
            } else {
                producer.sendOneway(messages.get(i), by, keys.get(i));
            }
        }
        return null;
    }

    private Object batch(List<Message> messages, JSONObject command) {
        try {
            if (!command.containsKey("queue")) {
                return result(producer.send(messages));
            }
            return result(
                    producer.send(
                            messages,
                            new MessageQueue(
                                    command.getString("topic"),
                                    command.getString("broker"),
                                    command.getIntValue("queue"))));
        } catch (Exception error) {
            return Driver.describe(error);
        }
    }

    /** By reflection: clients before 5.3 have no recall. */
    private Object recall(JSONObject command) throws Exception {
        try {
            return DefaultMQProducer.class
                    .getMethod("recallMessage", String.class, String.class)
                    .invoke(producer, command.getString("topic"), command.getString("handle"));
        } catch (InvocationTargetException failed) {
            return Driver.describe((Exception) failed.getCause());
        }
    }

    private static MessageQueueSelector selector(String name) {
        switch (name == null ? "" : name) {
            case "hash":
                return new SelectMessageQueueByHash();
            case "random":
                return new SelectMessageQueueByRandom();
            case "custom": // the key is the number of the queue, counted from the last
                return (queues, message, key) ->
                        queues.get(queues.size() - 1 - Integer.parseInt((String) key));
            default:
                return null;
        }
    }

    private static Message message(String topic, JSONObject fields) {
        String body = fields.getString("body");
        int times = fields.containsKey("times") ? fields.getIntValue("times") : 1;
        Message message =
                new Message(
                        topic,
                        fields.getString("tags"),
                        fields.getString("keys"),
                        body.repeat(times).getBytes(StandardCharsets.UTF_8));
        JSONObject properties = fields.getJSONObject("properties");
        if (properties != null) {
            properties.forEach((name, value) -> message.putUserProperty(name, (String) value));
        }
        if (fields.containsKey("level")) {
            message.setDelayTimeLevel(fields.getIntValue("level"));
        }
        // Like the setters of 5.x, but also for clients of 4.9.
        if (fields.containsKey("delayMs")) {
            MessageAccessor.putProperty(message, "TIMER_DELAY_MS", fields.getString("delayMs"));
        }
        if (fields.containsKey("deliverMs")) {
            MessageAccessor.putProperty(message, "TIMER_DELIVER_MS", fields.getString("deliverMs"));
        }
        return message;
    }

    private static Map<String, Object> result(SendResult sent) {
        Map<String, Object> result = new LinkedHashMap<>();
        result.put("status", sent.getSendStatus().name());
        result.put("queue", sent.getMessageQueue().getQueueId());
        result.put("offset", sent.getQueueOffset());
        result.put("msgId", sent.getMsgId());
        result.put("offsetMsgId", sent.getOffsetMsgId());
        try {
            result.put("recallHandle", SendResult.class.getMethod("getRecallHandle").invoke(sent));
        } catch (ReflectiveOperationException before53) {
            result.put("recallHandle", null);
        }
        return result;
    }

    @Override
    public void close() {
        producer.shutdown();
    }
}
