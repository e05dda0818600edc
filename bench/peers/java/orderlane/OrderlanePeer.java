import java.util.Map;
import java.util.TreeMap;
import orderlane.client.Message;
import orderlane.client.OrderlaneConsumer;
import orderlane.client.Outcome;

/** Our own Java client at a proxy. */
public final class OrderlanePeer {
    private OrderlanePeer() {}

    public static void main(String[] arguments) throws Exception {
        Options options = new Options(arguments);
        Job job = new Job(options);
        Map<String, Object> settings = new TreeMap<>();
        for (String name : new String[] {"concurrency", "prefetch", "max-run"}) {
            settings.put(name, options.number(name));
        }
        try (OrderlaneConsumer consumer =
                OrderlaneConsumer.builder(options.text("servers"))
                        .group(options.text("group"))
                        .topic(options.text("topic"))
                        .concurrency(options.number("concurrency"))
                        .prefetch(options.number("prefetch"))
                        .maxRun(options.number("max-run"))
                        .build()) {
            if (options.number("max-run") > 1) {
                consumer.startBatches(
                        batch -> {
                            for (Message each : batch) {
                                job.handle(each.body());
                            }
                            return Outcome.ok();
                        });
            } else {
                consumer.start(
                        message -> {
                            job.handle(message.body());
                            return Outcome.ok();
                        });
            }
            job.awaitAll(options.number("within-s"));
        }
        job.report(settings, Map.of("java", Runtime.version().toString()));
        System.exit(0);
    }
}
