package orderlane.client.conformance;

import com.google.gson.JsonParser;
import java.util.List;
import orderlane.client.Outcome;
import orderlane.client.internal.Rehearsal;

/** Loads, before the first request, what the cases would else have to wait for. */
final class WarmUp {
    private static final String SENDING = "orderlane.client.gen.producer.ProducerService$sendSync_";

    private WarmUp() {}

    static void consuming() throws Exception {
        Rehearsal.play(
                message -> {
                    message.onLeaseLost(() -> {});
                    Lines.JSON.toJson(Lines.message(message, Lines.event("start")));
                    Lines.JSON.toJson(Lines.place(message, Lines.event("end")));
                    JsonParser.parseString("{\"do\": \"retry\", \"work_ms\": 1.5, \"no\": null}");
                    Outcome.retry().kind();
                });
    }

    static void sending() throws ClassNotFoundException {
        for (String name :
                List.of(
                        SENDING + "args",
                        SENDING + "result",
                        "orderlane.client.internal.Delivery",
                        "orderlane.client.internal.SendOrder",
                        "orderlane.client.internal.WireMessages")) {
            Class.forName(name);
        }
    }
}
