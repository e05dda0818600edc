import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Reads keys as RelayLine's fields; answers each with its hash, and the queues chosen by the
 * selector for each number of queues in the arguments.
 */
public final class RelayHash {
    public static void main(String[] args) throws Exception {
        RelayLine.ownOutput();
        List<Integer> counts = new ArrayList<>();
        for (String arg : args) {
            counts.add(Integer.parseInt(arg));
        }
        BufferedReader input =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String key = RelayLine.text(line);
            StringBuilder answer = new StringBuilder(String.valueOf(key.hashCode()));
            for (int count : counts) {
                answer.append(' ').append(queue(key, count));
            }
            RelayLine.print(answer.toString());
        }
    }

    private static int queue(String key, int count) {
        List<MessageQueue> queues = new ArrayList<>();
        for (int id = 0; id < count; id++) {
            queues.add(new MessageQueue("topic", "broker-a", id));
        }
        Message message = new Message("topic", new byte[] {1});
        return new SelectMessageQueueByHash().select(queues, message, key).getQueueId();
    }
}
