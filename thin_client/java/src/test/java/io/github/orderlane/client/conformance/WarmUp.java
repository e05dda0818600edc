package io.github.orderlane.client.conformance;

import com.google.gson.JsonParser;
import io.github.orderlane.client.Outcome;
import io.github.orderlane.client.Tls;
import io.github.orderlane.client.internal.Rehearsal;
import java.nio.ByteBuffer;
import java.util.List;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.SSLException;

/** Loads classes before the first request, so that cases do not wait for it. */
final class WarmUp {
    private static final String SENDING = "io.github.orderlane.client.gen.producer.ProducerService$sendSync_";

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
                        "io.github.orderlane.client.internal.Delivery",
                        "io.github.orderlane.client.internal.SendOrder",
                        "io.github.orderlane.client.internal.WireMessages")) {
            Class.forName(name);
        }
    }
}
