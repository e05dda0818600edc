import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.common.message.Message;

/**
 * Sends messages read as RelayLine's fields: number, body, sharding key, keys, tags, properties.
 * Messages of one sharding key are sent one after the other, to the queue of its hash; those
 * without go to any queue. Answers a line for each: number, "ok", queue id, queue offset, message
 * id; or number, "failed", reason.
 */
public final class RelaySend {
    private static final int LANES = 16;

    public static void main(String[] args) throws Exception {
        RelayLine.ownOutput();
        DefaultMQProducer producer = new DefaultMQProducer("relay-send");
        producer.setNamesrvAddr(args[0]);
        // The default is three seconds, too short for a cold virtual machine.
        producer.setSendMsgTimeout(60_000);
        producer.setMqClientApiTimeout(60_000);
        producer.start();
        List<ExecutorService> lanes = new ArrayList<>();
        for (int i = 0; i < LANES; i++) {
            lanes.add(Executors.newSingleThreadExecutor());
        }
        BufferedReader input =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] fields = line.split(" ");
            String shardingKey = RelayLine.text(fields[2]);
            int lane = shardingKey == null
                ? Integer.parseInt(fields[0]) : shardingKey.hashCode() & Integer.MAX_VALUE;
            lanes.get(lane % LANES).execute(() -> send(producer, args[1], fields, shardingKey));
        }
        for (ExecutorService lane : lanes) {
            lane.shutdown();
            lane.awaitTermination(5, TimeUnit.MINUTES);
        }
        producer.shutdown();
    }

    private static void send(
        DefaultMQProducer producer, String topic, String[] fields, String shardingKey) {
        String outcome;
        try {
            Message message = message(topic, fields);
            SendResult result = shardingKey == null
                ? producer.send(message)
                : producer.send(message, new SelectMessageQueueByHash(), shardingKey);
            outcome = String.join(" ", "ok",
                String.valueOf(result.getMessageQueue().getQueueId()),
                String.valueOf(result.getQueueOffset()), result.getMsgId());
        } catch (Exception error) {
            outcome = "failed " + RelayLine.ofText(String.valueOf(error.getMessage()));
        }
        RelayLine.print(fields[0] + " " + outcome);
    }

    private static Message message(String topic, String[] fields) {
        Message message = new Message(topic, RelayLine.bytes(fields[1]));
        String keys = RelayLine.text(fields[3]);
        String tags = RelayLine.text(fields[4]);
        if (keys != null) {
            message.setKeys(keys);
        }
        if (tags != null) {
            message.setTags(tags);
        }
        for (int i = 5; i < fields.length; i += 2) {
            message.putUserProperty(RelayLine.text(fields[i]), RelayLine.text(fields[i + 1]));
        }
        return message;
    }
}
