import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * A push consumer, orderly or concurrent, whose handler follows the test's plan: by body, one
 * outcome per delivery, then SUCCESS. An outcome is a status, THROW or NULL; "HOLD status" first
 * waits for the command release.
 */
final class PushRole implements Driver.Role {
    private final String name;
    private final DefaultMQPushConsumer consumer;
    private final boolean autoCommit;
    private final long handleNanos;
    private final Map<String, Deque<String>> plan = new ConcurrentHashMap<>();
    private final CountDownLatch released = new CountDownLatch(1);
    private final Driver.Events events = new Driver.Events();

    PushRole(JSONObject command) throws Exception {
        name = command.getString("name");
        autoCommit = !Boolean.FALSE.equals(command.getBoolean("autoCommit"));
        handleNanos = command.getLongValue("handleMicros") * 1000;
        if (command.containsKey("plan")) {
            command.getJSONObject("plan").forEach((body, outcomes) -> plan(body, outcomes));
        }
        consumer = new DefaultMQPushConsumer(
                command.getString("group"), Driver.hook(command), new AllocateMessageQueueAveragely());
        configure(command);
        String[] topics = command.getString("topic").split(",");
        for (String topic : topics) {
            if (command.containsKey("where")) {
                consumer.subscribe(topic, MessageSelector.bySql(command.getString("where")));
            } else {
                consumer.subscribe(topic, command.getString("tags"));
            }
        }
        if (command.getBooleanValue("orderly")) {
            consumer.registerMessageListener((MessageListenerOrderly) this::orderly);
        } else {
            consumer.registerMessageListener(
                    (MessageListenerConcurrently) (messages, context) -> concurrently(messages));
        }
        consumer.start();
        // Its own producer sends given-up messages, by default within three seconds.
        consumer.getDefaultMQPushConsumerImpl()
                .getmQClientFactory()
                .getDefaultMQProducer()
                .setSendMsgTimeout(20_000);
    }

    private void configure(JSONObject command) throws Exception {
        Driver.configure(consumer, command);
        consumer.setConsumeThreadMin(8);
        consumer.setConsumeThreadMax(8);
        consumer.setSuspendCurrentQueueTimeMillis(50);
        // Let running handlers end and commit; by default a shutdown does not wait.
        consumer.setAwaitTerminationMillisWhenShutdown(10_000);
        consumer.setConsumeMessageBatchMaxSize(Math.max(1, command.getIntValue("batch")));
        if (command.containsKey("maxReconsumeTimes")) {
            consumer.setMaxReconsumeTimes(command.getIntValue("maxReconsumeTimes"));
        }
        if (command.containsKey("from")) {
            String from = "CONSUME_FROM_" + command.getString("from");
            Driver.setEnum(consumer, "setConsumeFromWhere", from);
        }
        if (command.containsKey("timestamp")) {
            consumer.setConsumeTimestamp(command.getString("timestamp"));
        }
        if (command.getBooleanValue("broadcast")) {
            Driver.setEnum(consumer, "setMessageModel", "BROADCASTING");
        }
        if ("circle".equals(command.getString("allocate"))) {
            consumer.setAllocateMessageQueueStrategy(new AllocateMessageQueueAveragelyByCircle());
        } else if ("custom".equals(command.getString("allocate"))) {
            consumer.setAllocateMessageQueueStrategy(new AllButTheFirstToTheLast());
        }
    }

    @Override
    public Object run(String op, JSONObject command) throws Exception {
        switch (op) {
            case "release":
                released.countDown();
                return null;
            case "owned":
                return owned();
            case "subscribe":
                consumer.subscribe(command.getString("topic"), command.getString("tags"));
                return null;
            default:
                throw new IllegalArgumentException(op);
        }
    }

    private ConsumeOrderlyStatus orderly(List<MessageExt> messages, ConsumeOrderlyContext context) {
        context.setAutoCommit(autoCommit);
        String outcome = handle(messages);
        return outcome == null ? null : ConsumeOrderlyStatus.valueOf(outcome);
    }

    private ConsumeConcurrentlyStatus concurrently(List<MessageExt> messages) {
        String outcome = handle(messages);
        if ("SUCCESS".equals(outcome)) {
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        }
        return outcome == null ? null : ConsumeConcurrentlyStatus.valueOf(outcome);
    }

    private String handle(List<MessageExt> messages) {
        long begin = System.nanoTime();
        String outcome = "SUCCESS";
        for (MessageExt message : messages) {
            print("begin", message, begin, null);
            Deque<String> planned = plan.get(text(message));
            String next = planned == null ? null : planned.poll();
            outcome = next == null ? outcome : next;
        }
        if (outcome.startsWith("HOLD ")) {
            await(released);
            outcome = outcome.substring("HOLD ".length());
        }
        if (handleNanos > 0) {
            LockSupport.parkNanos(handleNanos);
        }
        long end = System.nanoTime();
        for (MessageExt message : messages) {
            print("end", message, end, outcome);
        }
        if (outcome.equals("THROW")) {
            throw new IllegalStateException("as planned");
        }
        return outcome.equals("NULL") ? null : outcome;
    }

    private void print(String event, MessageExt message, long at, String outcome) {
        Map<String, Object> record = new LinkedHashMap<>();
        record.put("event", event);
        record.put("name", name);
        record.put("at", at);
        record.put("topic", message.getTopic());
        record.put("queue", message.getQueueId());
        record.put("offset", message.getQueueOffset());
        record.put("body", text(message));
        record.put("bytes", message.getBody().length);
        record.put("tags", message.getTags());
        record.put("keys", message.getKeys());
        record.put("times", message.getReconsumeTimes());
        record.put("outcome", outcome);
        events.print(record);
    }

    /** Returns the queues in the client's own table. */
    private List<Object> owned() {
        List<Object> queues = new ArrayList<>();
        consumer.getDefaultMQPushConsumerImpl()
                .getRebalanceImpl()
                .getProcessQueueTable()
                .forEach(
                        (queue, processed) -> {
                            Map<String, Object> one = new LinkedHashMap<>();
                            one.put("topic", queue.getTopic());
                            one.put("queue", queue.getQueueId());
                            one.put("locked", processed.isLocked());
                            one.put("expired", processed.isLockExpired());
                            one.put("dropped", processed.isDropped());
                            queues.add(one);
                        });
        return queues;
    }

    private void plan(String body, Object outcomes) {
        Deque<String> planned = new ArrayDeque<>();
        ((JSONArray) outcomes).forEach(outcome -> planned.add((String) outcome));
        plan.put(body, planned);
    }

    private static String text(MessageExt message) {
        byte[] body = message.getBody();
        return new String(body, 0, Math.min(body.length, 64), StandardCharsets.UTF_8);
    }

    private static void await(CountDownLatch latch) {
        try {
            latch.await();
        } catch (InterruptedException shutdown) {
            Thread.currentThread().interrupt();
        }
    }

    @Override
    public void silence() {
        events.silence();
    }

    @Override
    public void close() {
        released.countDown();
        consumer.shutdown();
    }

    /** Not balanced: the first client gets queue 0, the last one the rest. */
    private static final class AllButTheFirstToTheLast implements AllocateMessageQueueStrategy {
        @Override
        public List<MessageQueue> allocate(
                String group, String me, List<MessageQueue> queues, List<String> clients) {
            List<MessageQueue> mine = new ArrayList<>();
            for (MessageQueue queue : queues) {
                int owner = queue.getQueueId() == 0 ? 0 : clients.size() - 1;
                if (clients.get(owner).equals(me)) {
                    mine.add(queue);
                }
            }
            return mine;
        }

        @Override
        public String getName() {
            return "ALL_BUT_THE_FIRST_TO_THE_LAST";
        }
    }
}
