import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.Collections;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;

/** Apache RocketMQ's gRPC push consumer at its proxy; the group's settings at the broker order it. */
public final class RocketmqProxyPeer {
    /** By default 3 s, which a busy machine exceeds while everything starts. */
    private static final int REQUEST_S = 30;

    private RocketmqProxyPeer() {}

    public static void main(String[] arguments) throws Exception {
        Options options = new Options(arguments);
        Work job = Work.of(options);
        ClientConfiguration configuration =
                ClientConfiguration.newBuilder()
                        .setEndpoints(options.text("endpoints"))
                        .enableSsl(false)
                        .setRequestTimeout(Duration.ofSeconds(REQUEST_S))
                        .build();
        PushConsumer consumer =
                ClientServiceProvider.loadService()
                        .newPushConsumerBuilder()
                        .setClientConfiguration(configuration)
                        .setConsumerGroup(options.text("group"))
                        .setSubscriptionExpressions(
                                Collections.singletonMap(
                                        options.text("topic"), FilterExpression.SUB_ALL))
                        .setConsumptionThreadCount(options.number("concurrency"))
                        .setMaxCacheMessageCount(options.number("cache"))
                        .setEnableFifoConsumeAccelerator(true)
                        .setMessageListener(
                                message -> {
                                    job.handle(bytes(message.getBody()));
                                    return ConsumeResult.SUCCESS;
                                })
                        .build();
        job.awaitEnd();
        Map<String, Object> settings = new TreeMap<>();
        settings.put("consumptionThreadCount", options.number("concurrency"));
        settings.put("maxCacheMessageCount", options.number("cache"));
        settings.put("enableFifoConsumeAccelerator", true);
        settings.put("consumeMessageOrderly", true);
        job.report(
                settings,
                Map.of(
                        "rocketmq-client-java", options.text("version"),
                        "rocketmq-proxy", options.text("proxy-version"),
                        "java", Runtime.version().toString()),
                Map.of());
        System.exit(0); // closing the consumer would wait for its long polls
    }

    private static byte[] bytes(ByteBuffer body) {
        byte[] bytes = new byte[body.remaining()];
        body.duplicate().get(bytes);
        return bytes;
    }
}
