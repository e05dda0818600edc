import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Prints a line for each message of a topic, as RelayLine's fields: queue id, queue offset, message
 * id, body, keys, tags, properties. Ends at the end of its input.
 */
public final class RelayReceive {
    public static void main(String[] args) throws Exception {
        RelayLine.ownOutput();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("relay-" + args[1]);
        consumer.setNamesrvAddr(args[0]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeMessageBatchMaxSize(32);
        consumer.subscribe(args[1], "*");
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            messages.forEach(RelayReceive::print);
            return ConsumeOrderlyStatus.SUCCESS;
        });
        consumer.start();
        while (System.in.read() >= 0) {
            continue;
        }
        consumer.shutdown();
    }

    private static void print(MessageExt message) {
        String line = String.join(" ",
            String.valueOf(message.getQueueId()),
            String.valueOf(message.getQueueOffset()),
            message.getMsgId(),
            RelayLine.ofBytes(message.getBody()),
            RelayLine.ofText(message.getKeys()),
            RelayLine.ofText(message.getTags()),
            RelayLine.ofProperties(message.getProperties()));
        RelayLine.print(line);
    }
}
