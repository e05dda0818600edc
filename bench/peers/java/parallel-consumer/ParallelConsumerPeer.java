import io.confluent.parallelconsumer.ParallelConsumerOptions;
import io.confluent.parallelconsumer.ParallelConsumerOptions.CommitMode;
import io.confluent.parallelconsumer.ParallelConsumerOptions.ProcessingOrder;
import io.confluent.parallelconsumer.ParallelStreamProcessor;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.utils.AppInfoParser;

/** Confluent's Parallel Consumer, ordered by key, by partition, or not at all. */
public final class ParallelConsumerPeer {
    private ParallelConsumerPeer() {}

    public static void main(String[] arguments) throws Exception {
        Options options = new Options(arguments);
        Work job = Work.of(options);
        Map<String, Object> properties = new TreeMap<>();
        properties.put(ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, options.text("servers"));
        properties.put(ConsumerConfig.GROUP_ID_CONFIG, options.text("group"));
        properties.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest");
        properties.put(ConsumerConfig.ENABLE_AUTO_COMMIT_CONFIG, false); // it commits by itself
        properties.put(ConsumerConfig.MAX_POLL_RECORDS_CONFIG, options.number("max-poll-records"));
        // Keys are compared by value, so they cannot be arrays.
        KafkaConsumer<String, byte[]> consumer =
                new KafkaConsumer<>(
                        properties, new StringDeserializer(), new ByteArrayDeserializer());
        ParallelConsumerOptions<String, byte[]> consumerOptions =
                ParallelConsumerOptions.<String, byte[]>builder()
                        .consumer(consumer)
                        .ordering(ProcessingOrder.valueOf(options.text("order")))
                        .maxConcurrency(options.number("concurrency"))
                        .batchSize(options.number("handler-batch"))
                        .commitMode(CommitMode.PERIODIC_CONSUMER_ASYNCHRONOUS)
                        .build();
        ParallelStreamProcessor<String, byte[]> processor =
                ParallelStreamProcessor.createEosStreamProcessor(consumerOptions);
        processor.subscribe(List.of(options.text("topic")));
        processor.poll(context -> context.forEach(record -> job.handle(record.value())));
        try {
            job.awaitEnd();
        } finally {
            processor.closeDrainFirst();
        }
        Map<String, Object> settings = new TreeMap<>();
        settings.put("ordering", consumerOptions.getOrdering());
        settings.put("maxConcurrency", consumerOptions.getMaxConcurrency());
        settings.put("batchSize", consumerOptions.getBatchSize());
        settings.put("commitMode", consumerOptions.getCommitMode());
        settings.put("commitInterval", consumerOptions.getCommitInterval());
        settings.put("max.poll.records", options.number("max-poll-records"));
        job.report(
                settings,
                Map.of(
                        "parallel-consumer", options.text("version"),
                        "kafka-clients", AppInfoParser.getVersion(),
                        "java", Runtime.version().toString()),
                Map.of());
        System.exit(0);
    }
}
