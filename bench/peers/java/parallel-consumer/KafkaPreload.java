import java.io.BufferedInputStream;
import java.io.DataInputStream;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Creates a topic and stores the messages from stdin in order: for each the partition, the lengths
 * of key and body (4 bytes each, big-endian), key, body.
 */
public final class KafkaPreload {
    private KafkaPreload() {}

    public static void main(String[] arguments) throws Exception {
        Options options = new Options(arguments);
        String topic = options.text("topic");
        Map<String, Object> properties = new TreeMap<>();
        properties.put(ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, options.text("servers"));
        try (Admin admin = Admin.create(properties)) {
            NewTopic wanted = new NewTopic(topic, options.number("partitions"), (short) 1);
            admin.createTopics(List.of(wanted)).all().get();
            while (!isLed(admin, topic)) {
                Thread.sleep(50);
            }
        }
        properties.put(ProducerConfig.ACKS_CONFIG, "all");
        properties.put(ProducerConfig.LINGER_MS_CONFIG, 20);
        properties.put(ProducerConfig.BATCH_SIZE_CONFIG, 1 << 18);
        AtomicReference<Exception> failure = new AtomicReference<>();
        int stored = 0;
        try (DataInputStream input =
                        new DataInputStream(new BufferedInputStream(System.in, 1 << 16));
                KafkaProducer<byte[], byte[]> producer =
                        new KafkaProducer<>(
                                properties,
                                new ByteArraySerializer(),
                                new ByteArraySerializer())) {
            for (; stored < options.number("messages"); stored++) {
                int partition = input.readInt();
                byte[] key = new byte[input.readInt()];
                byte[] body = new byte[input.readInt()];
                input.readFully(key);
                input.readFully(body);
                producer.send(
                        new ProducerRecord<>(topic, partition, key, body),
                        (receipt, error) -> failure.compareAndSet(null, error));
            }
            producer.flush();
        }
        if (failure.get() != null) {
            throw failure.get();
        }
        System.out.println(Json.line(Map.of("stored", stored)));
    }

    /** Whether all partitions accept messages; an early producer may wait long. */
    private static boolean isLed(Admin admin, String topic) throws Exception {
        try {
            TopicDescription found =
                    admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
            return found.partitions().stream().allMatch(each -> each.leader() != null);
        } catch (ExecutionException notYet) {
            return false;
        }
    }
}
