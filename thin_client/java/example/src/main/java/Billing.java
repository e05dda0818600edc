import io.github.orderlane.client.Message;
import io.github.orderlane.client.OrderlaneConsumer;
import io.github.orderlane.client.OrderlaneProducer;
import io.github.orderlane.client.Outcome;
import io.github.orderlane.client.OutgoingMessage;
import java.time.Duration;
import java.util.concurrent.CountDownLatch;

/** Sends ten orders of two customers, and charges each customer's in order. */
public class Billing {
    private static final String PROXY = System.getenv().getOrDefault("PROXY", "127.0.0.1:9713");
    private static final CountDownLatch charged = new CountDownLatch(10);

    public static void main(String[] args) throws InterruptedException {
        try (var producer = OrderlaneProducer.builder(PROXY).build()) {
            for (int number = 0; number < 10; number++) {
                producer.send(
                        OutgoingMessage.to("java-orders")
                                .key("customer-" + number % 2)
                                .body("order " + number)
                                .build());
            }
        }
        try (var consumer =
                OrderlaneConsumer.builder(PROXY)
                        .group("java-billing")
                        .topic("java-orders")
                        .concurrency(64)
                        .build()) {
            consumer.start(Billing::charge); // Ctrl-C and SIGTERM wait for handlers
            charged.await(); // a service would call consumer.awaitTermination()
        }
    }

    private static Outcome charge(Message message) {
        if (message.text().equals("order 4") && message.attempt() == 1) {
            return Outcome.retryAfter(Duration.ofMillis(500)); // only customer-0 waits
        }
        System.out.println(message.key().orElse("?") + ": " + message.text());
        charged.countDown();
        return Outcome.ok();
    }
}
