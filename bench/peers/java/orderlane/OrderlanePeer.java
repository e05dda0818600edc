import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.Executor;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicInteger;
import io.github.orderlane.client.Message;
import io.github.orderlane.client.Observer;
import io.github.orderlane.client.OrderlaneConsumer;
import io.github.orderlane.client.Outcome;

/** Orderlane's Java client at a proxy. */
public final class OrderlanePeer {
    private OrderlanePeer() {}

    public static void main(String[] arguments) throws Exception {
        Options options = new Options(arguments);
        Work job = Work.of(options);
        Map<String, Object> settings = new TreeMap<>();
        for (String name : new String[] {"concurrency", "prefetch", "max-run"}) {
            settings.put(name, options.number(name));
        }
        Executor virtual = virtualThreads();
        settings.put("threads", virtual == null ? "platform" : "virtual");
        Requests requests = new Requests();
        OrderlaneConsumer.Builder builder =
                OrderlaneConsumer.builder(options.text("servers"))
                        .group(options.text("group"))
                        .topic(options.text("topic"))
                        .concurrency(options.number("concurrency"))
                        .prefetch(options.number("prefetch"))
                        .maxRun(options.number("max-run"))
                        .observer(requests);
        if (virtual != null) {
            builder.executor(virtual);
        }
        try (OrderlaneConsumer consumer = builder.build()) {
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
            job.awaitEnd();
        }
        Map<String, Object> figures =
                Map.of("pulls", requests.pulls.get(), "settles", requests.settles.get());
        job.report(settings, Map.of("java", Runtime.version().toString()), figures);
        System.exit(0);
    }

    /** A virtual thread per running handler; null before Java 21. */
    private static Executor virtualThreads() throws ReflectiveOperationException {
        try {
            return (Executor)
                    Executors.class.getMethod("newVirtualThreadPerTaskExecutor").invoke(null);
        } catch (NoSuchMethodException older) {
            return null;
        }
    }

    /** Counts calls to the proxy, except those that extend leases. */
    private static final class Requests implements Observer {
        private final AtomicInteger pulls = new AtomicInteger();
        private final AtomicInteger settles = new AtomicInteger();

        @Override
        public void onPulled(int messages) {
            pulls.incrementAndGet();
        }

        @Override
        public void onSettled(int messages, int notHeld) {
            settles.incrementAndGet();
        }
    }
}
