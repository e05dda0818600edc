import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.common.message.MessageQueue;

/** A lite pull consumer that subscribes to a topic, or is assigned queues of it. */
final class LitePullRole implements Driver.Role {
    private final DefaultLitePullConsumer consumer;
    private final String topic;
    private final String broker;

    LitePullRole(JSONObject command) throws Exception {
        topic = command.getString("topic");
        broker = command.getString("broker");
        consumer = new DefaultLitePullConsumer(command.getString("group"));
        Driver.configure(consumer, command);
        consumer.setAutoCommit(command.getBooleanValue("autoCommit"));
        Driver.setEnum(consumer, "setConsumeFromWhere", "CONSUME_FROM_FIRST_OFFSET");
        if (!command.containsKey("queues")) {
            consumer.subscribe(topic, command.getString("tags"));
            consumer.start();
            return;
        }
        consumer.start();
        List<MessageQueue> queues = new ArrayList<>();
        command.getJSONArray("queues").forEach(id -> queues.add(queue((Integer) id)));
        consumer.assign(queues);
    }

    @Override
    public Object run(String op, JSONObject command) throws Exception {
        MessageQueue queue = queue(command.getIntValue("queue"));
        switch (op) {
            case "poll":
                return PullRole.seen(consumer.poll(command.getLongValue("ms")));
            case "commit":
                consumer.commit(new HashSet<>(consumer.assignment()), true);
                return null;
            case "committed":
                return consumer.committed(queue);
            case "seek":
                consumer.seek(queue, command.getLongValue("offset"));
                return null;
            case "seekToBegin":
                consumer.seekToBegin(queue);
                return null;
            case "seekToEnd":
                consumer.seekToEnd(queue);
                return null;
            case "offsetForTimestamp":
                return consumer.offsetForTimestamp(queue, command.getLong("ms"));
            case "queues":
                return PullRole.ids(consumer.fetchMessageQueues(topic));
            case "assignment":
                Collection<MessageQueue> mine = consumer.assignment();
                return PullRole.ids(mine);
            default:
                throw new IllegalArgumentException(op);
        }
    }

    private MessageQueue queue(int id) {
        return new MessageQueue(topic, broker, id);
    }

    @Override
    public void close() {
        consumer.shutdown();
    }
}
