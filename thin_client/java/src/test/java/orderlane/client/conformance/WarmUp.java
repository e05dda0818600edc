package orderlane.client.conformance;

import com.google.gson.JsonObject;
import java.util.List;
import java.util.Map;

/**
 * Loads, before the first pull, what the first message needs: on a busy machine that takes longer
 * than the leases of the cases last, and it is the client that they judge, not the JVM.
 */
final class WarmUp {
    private static final String STRUCTS = "orderlane.client.gen.consumer.";
    private static final String OWN = "orderlane.client.internal.";

    private WarmUp() {}

    static void run() throws ClassNotFoundException {
        for (String call : List.of("pull", "settle", "extend")) {
            String name = STRUCTS + "ConsumerService$" + call;
            load(name + "_args");
            load(name + "_args$" + call + "_argsStandardScheme");
            load(name + "_result");
            load(name + "_result$" + call + "_resultStandardScheme");
        }
        for (String struct :
                List.of(
                        "AckAnswer", "AckBatch", "AckRequest", "Context", "ExtendRequest",
                        "LeaseRef", "Message", "Nack", "PullRequest", "PullResponse")) {
            load(STRUCTS + struct);
            load(STRUCTS + struct + "$" + struct + "StandardScheme");
        }
        for (String own :
                List.of(
                        "Control", "Ending", "Handling", "HeldMessage", "Home", "Lease",
                        "Lease$Key", "LeaseName", "PullReader", "Verdicts", "Wire", "Work$Result",
                        "Workers")) {
            load(OWN + own);
        }
        load("orderlane.client.gen.producer.ProducerService$sendSync_args");
        load("orderlane.client.gen.producer.ProducerService$sendSync_result");
        for (String sending : List.of("Delivery", "SendOrder", "WireMessages", "ProducerEngine")) {
            load(OWN + sending);
        }
        JsonObject line = Lines.event("warm");
        line.add("properties", Lines.JSON.toJsonTree(Map.of("a", "b")));
        line.addProperty("number", 1L);
        line.addProperty("text", "ü");
        Lines.JSON.toJson(line);
    }

    private static void load(String name) throws ClassNotFoundException {
        Class.forName(name);
    }
}
