import com.alibaba.fastjson.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** The classic pull consumer: requests offsets and messages, and keeps no state. */
@SuppressWarnings("deprecation")
final class PullRole implements Driver.Role {
    private final DefaultMQPullConsumer consumer;
    private final String topic;
    private final String broker;

    PullRole(JSONObject command) throws Exception {
        topic = command.getString("topic");
        broker = command.getString("broker");
        consumer = new DefaultMQPullConsumer(command.getString("group"));
        Driver.configure(consumer, command);
        consumer.start();
    }

    @Override
    public Object run(String op, JSONObject command) throws Exception {
        MessageQueue queue = new MessageQueue(topic, broker, command.getIntValue("queue"));
        long offset = command.getLongValue("offset");
        switch (op) {
            case "pull":
                return pulled(consumer.pull(queue, command.getString("tags"), offset, 32));
            case "pullBlocking":
                String tags = command.getString("tags");
                return pulled(consumer.pullBlockIfNotFound(queue, tags, offset, 32));
            case "offsets":
                Map<String, Object> offsets = new LinkedHashMap<>();
                offsets.put("min", consumer.minOffset(queue));
                offsets.put("max", consumer.maxOffset(queue));
                offsets.put("at", consumer.searchOffset(queue, command.getLongValue("ms")));
                return offsets;
            case "commit":
                consumer.updateConsumeOffset(queue, offset);
                consumer.getDefaultMQPullConsumerImpl()
                        .getOffsetStore()
                        .updateConsumeOffsetToBroker(queue, offset, false);
                return null;
            case "committed":
                return consumer.fetchConsumeOffset(queue, true);
            case "queues":
                return ids(consumer.fetchSubscribeMessageQueues(topic));
            default:
                throw new IllegalArgumentException(op);
        }
    }

    private static Object pulled(PullResult result) {
        Map<String, Object> found = new LinkedHashMap<>();
        found.put("status", result.getPullStatus().name());
        found.put("next", result.getNextBeginOffset());
        found.put("min", result.getMinOffset());
        found.put("max", result.getMaxOffset());
        found.put("messages", seen(result.getMsgFoundList()));
        return found;
    }

    static List<Object> seen(List<MessageExt> messages) {
        List<Object> seen = new ArrayList<>();
        for (MessageExt message : messages == null ? new ArrayList<MessageExt>() : messages) {
            Map<String, Object> one = new LinkedHashMap<>();
            one.put("queue", message.getQueueId());
            one.put("offset", message.getQueueOffset());
            one.put("body", new String(message.getBody(), StandardCharsets.UTF_8));
            one.put("tags", message.getTags());
            seen.add(one);
        }
        return seen;
    }

    static List<Integer> ids(Collection<MessageQueue> queues) {
        return queues.stream().map(MessageQueue::getQueueId).sorted().collect(Collectors.toList());
    }

    @Override
    public void close() {
        consumer.shutdown();
    }
}
