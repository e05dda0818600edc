import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;

/** Apache RocketMQ's own push consumer, orderly or concurrent. */
public final class RocketmqPeer {
    private RocketmqPeer() {}

    public static void main(String[] arguments) throws Exception {
        Options options = new Options(arguments);
        Work job = Work.of(options);
        boolean orderly = options.text("order").equals("orderly");
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(options.text("group"));
        consumer.setNamesrvAddr(options.text("nameserver"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeThreadMin(options.number("concurrency"));
        consumer.setConsumeThreadMax(options.number("concurrency"));
        consumer.setPullBatchSize(options.number("pull-batch"));
        consumer.setConsumeMessageBatchMaxSize(options.number("handler-batch"));
        consumer.setPullThresholdForQueue(options.number("pull-threshold"));
        consumer.subscribe(options.text("topic"), "*");
        if (orderly) {
            consumer.registerMessageListener(
                    (MessageListenerOrderly)
                            (messages, context) -> {
                                messages.forEach(each -> job.handle(each.getBody()));
                                return ConsumeOrderlyStatus.SUCCESS;
                            });
        } else {
            consumer.registerMessageListener(
                    (MessageListenerConcurrently)
                            (messages, context) -> {
                                messages.forEach(each -> job.handle(each.getBody()));
                                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
                            });
        }
        consumer.start();
        Runtime.getRuntime().addShutdownHook(new Thread(consumer::shutdown)); // for SIGTERM
        try {
            job.awaitEnd();
        } finally {
            consumer.shutdown();
        }
        Map<String, Object> settings = new TreeMap<>();
        settings.put("listener", orderly ? "orderly" : "concurrently");
        settings.put("consumeThreadMin", consumer.getConsumeThreadMin());
        settings.put("consumeThreadMax", consumer.getConsumeThreadMax());
        settings.put("pullBatchSize", consumer.getPullBatchSize());
        settings.put("consumeMessageBatchMaxSize", consumer.getConsumeMessageBatchMaxSize());
        settings.put("pullThresholdForQueue", consumer.getPullThresholdForQueue());
        String version = MQVersion.getVersionDesc(MQVersion.CURRENT_VERSION);
        job.report(
                settings,
                Map.of("rocketmq-client", version, "java", Runtime.version().toString()),
                Map.of());
        System.exit(0);
    }
}
