import java.util.Map;
import java.util.stream.Collectors;

/** The subset of JSON that the programs print. */
final class Json {
    private Json() {}

    static String line(Object value) {
        if (value instanceof Map<?, ?> map) {
            return map.entrySet().stream()
                    .map(each -> line(each.getKey()) + ":" + line(each.getValue()))
                    .collect(Collectors.joining(",", "{", "}"));
        }
        if (value instanceof Number || value instanceof Boolean) {
            return value.toString();
        }
        return '"' + value.toString().replace("\\", "\\\\").replace("\"", "\\\"") + '"';
    }
}
