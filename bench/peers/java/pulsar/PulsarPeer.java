import java.util.Map;
import java.util.TreeMap;
import org.apache.pulsar.PulsarVersion;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionType;

/**
 * One consumer of Apache Pulsar with a Key_Shared subscription. Its client gives the messages of a
 * key to the same one of its listener threads.
 */
public final class PulsarPeer {
    private PulsarPeer() {}

    public static void main(String[] arguments) throws Exception {
        Options options = new Options(arguments);
        Work job = Work.of(options);
        PulsarClient client =
                PulsarClient.builder()
                        .serviceUrl(options.text("servers"))
                        .listenerThreads(options.number("concurrency"))
                        .build();
        Consumer<byte[]> consumer =
                client.newConsumer(Schema.BYTES)
                        .topic(options.text("topic"))
                        .subscriptionName(options.text("group"))
                        .subscriptionType(SubscriptionType.Key_Shared)
                        .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                        .receiverQueueSize(options.number("receiver-queue"))
                        .messageListener(
                                (of, message) -> {
                                    job.handle(message.getData());
                                    of.acknowledgeAsync(message);
                                })
                        .subscribe();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> close(consumer))); // for SIGTERM
        try {
            job.awaitEnd();
        } finally {
            consumer.close();
        }
        Map<String, Object> settings = new TreeMap<>();
        settings.put("subscriptionType", "Key_Shared");
        settings.put("listenerThreads", options.number("concurrency"));
        settings.put("receiverQueueSize", options.number("receiver-queue"));
        job.report(
                settings,
                Map.of(
                        "pulsar-client", PulsarVersion.getVersion(),
                        "pulsar", options.text("server-version"),
                        "java", Runtime.version().toString()),
                Map.of());
        System.exit(0);
    }

    private static void close(Consumer<byte[]> consumer) {
        try {
            consumer.close();
        } catch (PulsarClientException error) {
            System.err.println(error);
        }
    }
}
