import java.io.BufferedInputStream;
import java.io.DataInputStream;
import java.util.Map;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.pulsar.client.api.BatcherBuilder;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.ProducerBuilder;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Schema;

/**
 * Sends the messages from stdin in order: for each the partition (4 bytes), the due time in ns (8
 * bytes, 0: at once), the lengths of key and body (4 bytes each, big-endian), key, body. Messages
 * without due times are sent in batches of one key each, as Key_Shared needs; others one by one.
 */
public final class PulsarSender {
    private PulsarSender() {}

    public static void main(String[] arguments) throws Exception {
        Options options = new Options(arguments);
        long clockNs = Long.parseLong(options.text("clock-ns"));
        AtomicReference<Throwable> failure = new AtomicReference<>();
        int sent = 0;
        try (PulsarClient client =
                        PulsarClient.builder().serviceUrl(options.text("servers")).build();
                DataInputStream input =
                        new DataInputStream(new BufferedInputStream(System.in, 1 << 16))) {
            @SuppressWarnings({"unchecked", "rawtypes"})
            Producer<byte[]>[] producers = new Producer[options.number("partitions")];
            for (int partition = 0; partition < producers.length; partition++) {
                ProducerBuilder<byte[]> builder =
                        client.newProducer(Schema.BYTES)
                                .topic(options.text("topic") + "-partition-" + partition)
                                .blockIfQueueFull(true)
                                .enableBatching(options.number("batching") > 0);
                if (options.number("batching") > 0) {
                    builder.batcherBuilder(BatcherBuilder.KEY_BASED);
                }
                producers[partition] = builder.create();
            }
            System.out.println(Json.line(Map.of("ready", true)));
            System.out.flush();
            for (; sent < options.number("messages"); sent++) {
                int partition = input.readInt();
                long dueNs = input.readLong();
                byte[] key = new byte[input.readInt()];
                byte[] body = new byte[input.readInt()];
                input.readFully(key);
                input.readFully(body);
                if (dueNs > 0) {
                    Work.sleep(dueNs - clockNs - System.nanoTime());
                }
                producers[partition]
                        .newMessage()
                        .key(new String(key, java.nio.charset.StandardCharsets.UTF_8))
                        .value(body)
                        .sendAsync()
                        .exceptionally(
                                error -> {
                                    failure.compareAndSet(null, error);
                                    return null;
                                });
            }
            for (Producer<byte[]> each : producers) {
                each.flush();
                each.close();
            }
        }
        if (failure.get() != null) {
            throw new IllegalStateException("a message was not stored", failure.get());
        }
        System.out.println(Json.line(Map.of("stored", sent)));
        System.exit(0);
    }
}
