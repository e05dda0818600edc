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
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * A transactional producer that follows the test's plan, by body: the first outcome is that of the
 * work itself, the others answer checks, then UNKNOW. "HOLD outcome" first waits for the command
 * release.
 */
final class TransactionRole implements Driver.Role, TransactionListener {
    private final String name;
    private final TransactionMQProducer producer;
    private final Map<String, Deque<String>> plan = new ConcurrentHashMap<>();
    private final CountDownLatch released = new CountDownLatch(1);
    private final Driver.Events events = new Driver.Events();

    TransactionRole(JSONObject command) throws Exception {
        name = command.getString("name");
        plan(command.getJSONObject("plan"));
        producer = new TransactionMQProducer(command.getString("group"));
        Driver.configure(producer, command);
        producer.setSendMsgTimeout(10_000);
        producer.setTransactionListener(this);
        producer.start();
        // Brokers check known producers only: one that never sent has no route to register.
        MQClientInstance instance = producer.getDefaultMQProducerImpl().getmQClientFactory();
        instance.updateTopicRouteInfoFromNameServer(command.getString("topic"));
        instance.sendHeartbeatToAllBrokerWithLock();
    }

    @Override
    public Object run(String op, JSONObject command) throws Exception {
        switch (op) {
            case "release":
                released.countDown();
                return null;
            case "begin": // answered before the work is done
                new Thread(() -> send(command)).start();
                return null;
            default:
                return send(command);
        }
    }

    private List<Object> send(JSONObject command) {
        List<Object> results = new ArrayList<>();
        for (Object each : command.getJSONArray("messages")) {
            JSONObject fields = (JSONObject) each;
            Message message =
                    new Message(
                            command.getString("topic"),
                            fields.getString("tags"),
                            fields.getString("keys"),
                            fields.getString("body").getBytes(StandardCharsets.UTF_8));
            JSONObject properties = fields.getJSONObject("properties");
            if (properties != null) {
                properties.forEach((key, value) -> message.putUserProperty(key, (String) value));
            }
            if (fields.containsKey("delayLevel")) {
                message.setDelayTimeLevel(fields.getIntValue("delayLevel"));
            }
            try {
                results.add(result(producer.sendMessageInTransaction(message, null)));
            } catch (Exception error) {
                results.add(Driver.describe(error));
            }
        }
        return results;
    }

    @Override
    public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
        return outcome("work", message, -1, -1);
    }

    @Override
    public LocalTransactionState checkLocalTransaction(MessageExt half) {
        return outcome("check", half, half.getQueueId(), half.getQueueOffset());
    }

    private LocalTransactionState outcome(String event, Message message, int queue, long offset) {
        byte[] body = message.getBody();
        String text = new String(body, 0, Math.min(body.length, 64), StandardCharsets.UTF_8);
        Deque<String> planned = plan.get(text);
        String next = planned == null ? null : planned.poll();
        String outcome = next == null ? "UNKNOW" : next;
        Map<String, Object> record = new LinkedHashMap<>();
        record.put("event", event);
        record.put("name", name);
        record.put("at", System.nanoTime());
        record.put("topic", message.getTopic());
        record.put("queue", queue);
        record.put("offset", offset);
        record.put("body", text);
        record.put("bytes", body.length);
        record.put("tags", message.getTags());
        record.put("keys", message.getTransactionId());
        record.put("outcome", outcome);
        events.print(record);
        if (outcome.startsWith("HOLD ")) {
            try {
                released.await();
            } catch (InterruptedException shutdown) {
                Thread.currentThread().interrupt();
            }
            outcome = outcome.substring("HOLD ".length());
        }
        return LocalTransactionState.valueOf(outcome);
    }

    private void plan(JSONObject given) {
        if (given == null) {
            return;
        }
        given.forEach(
                (body, outcomes) -> {
                    Deque<String> planned = new ArrayDeque<>();
                    ((JSONArray) outcomes).forEach(each -> planned.add((String) each));
                    plan.put(body, planned);
                });
    }

    private static Map<String, Object> result(TransactionSendResult sent) {
        Map<String, Object> result = new LinkedHashMap<>();
        result.put("status", sent.getSendStatus().name());
        result.put("state", sent.getLocalTransactionState().name());
        result.put("queue", sent.getMessageQueue().getQueueId());
        result.put("offset", sent.getQueueOffset());
        result.put("msgId", sent.getMsgId());
        result.put("transactionId", sent.getTransactionId());
        return result;
    }

    @Override
    public void silence() {
        events.silence();
    }

    @Override
    public void close() {
        released.countDown();
        producer.shutdown();
    }
}
