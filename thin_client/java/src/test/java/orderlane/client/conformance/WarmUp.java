package orderlane.client.conformance;

import com.google.gson.JsonParser;
import java.nio.ByteBuffer;
import java.util.List;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.SSLException;
import orderlane.client.Outcome;
import orderlane.client.Tls;
import orderlane.client.internal.Rehearsal;

/** Loads classes before the first request, so that cases do not wait for it. */
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

    /** Runs TLS as far as possible without a server: to its first message. */
    static void securing(Tls tls) throws SSLException {
        SSLEngine engine = tls.context().createSSLEngine("localhost", 1);
        engine.setUseClientMode(true);
        engine.beginHandshake();
        engine.wrap(
                ByteBuffer.allocate(0),
                ByteBuffer.allocate(engine.getSession().getPacketBufferSize()));
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
