import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;

import org.apache.rocketmq.broker.filter.MessageEvaluationContext;
import org.apache.rocketmq.common.filter.ExpressionType;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.Expression;

/**
 * Reads lines with a filter, then names and values of properties as RelayLine's fields; answers
 * whether the broker's own evaluation passes such a message, or refuses the filter.
 */
public final class RelayFilter {
    public static void main(String[] args) throws Exception {
        RelayLine.ownOutput();
        BufferedReader input =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] fields = line.split(" ");
            Map<String, String> properties = new HashMap<>();
            for (int i = 1; i + 1 < fields.length; i += 2) {
                properties.put(RelayLine.text(fields[i]), RelayLine.text(fields[i + 1]));
            }
            RelayLine.print(answer(RelayLine.text(fields[0]), properties));
        }
    }

    private static String answer(String filter, Map<String, String> properties) {
        Expression compiled;
        try {
            compiled = FilterFactory.INSTANCE.get(ExpressionType.SQL92).compile(filter);
        } catch (Throwable error) {
            return "refused";
        }
        try { // as in ExpressionMessageFilter
            Object value = compiled.evaluate(new MessageEvaluationContext(properties));
            return String.valueOf(value instanceof Boolean && (Boolean) value);
        } catch (Throwable error) {
            return "false";
        }
    }
}
