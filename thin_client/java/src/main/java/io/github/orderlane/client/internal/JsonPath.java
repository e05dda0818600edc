package io.github.orderlane.client.internal;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** A plain path into a JSON document: {@code $.a.b[0]['c d']}. Pure. */
public final class JsonPath {
    private static final Pattern STEP =
            Pattern.compile(
                    "\\.(?<name>[A-Za-z_\u0080-\uffff][\\w\u0080-\uffff-]*)"
                            + "|\\[(?<index>[0-9]{1,9})]"
                            + "|\\['(?<single>[^'\\\\]*)']|\\[\"(?<twice>[^\"\\\\]*)\"]");

    private final List<Object> steps; // a String for a member, an Integer for an element

    private JsonPath(List<Object> steps) {
        this.steps = steps;
    }

    /** Parses a path; throws IllegalArgumentException for any other kind of path. */
    public static JsonPath compile(String text) {
        List<Object> steps = new ArrayList<>();
        Matcher step = STEP.matcher(text);
        int end = text.startsWith("$") ? 1 : text.length() + 1;
        while (end < text.length() && step.find(end) && step.start() == end) {
            end = step.end();
            if (step.group("index") != null) {
                steps.add(Integer.valueOf(step.group("index")));
                continue;
            }
            for (String kind : List.of("name", "single", "twice")) {
                if (step.group(kind) != null) {
                    steps.add(step.group(kind));
                }
            }
        }
        if (end != text.length() || steps.isEmpty()) {
            throw new IllegalArgumentException(
                    "'" + text + "' is not a valid path for a producer:"
                            + " expected steps like $.a.b[0] or $['a']");
        }
        return new JsonPath(List.copyOf(steps));
    }

    /**
     * Returns the value at the path as text: a string without surrounding blanks, any other value
     * as canonical JSON. Empty if the value is missing or null. Throws IllegalArgumentException if
     * the bytes are not JSON, or the value is nested too deeply.
     */
    public Optional<String> textIn(byte[] document) {
        Object value;
        try {
            value = JsonReader.read(document);
        } catch (JsonReader.NotJson error) {
            throw new IllegalArgumentException(
                    "cannot read the sharding key: the body is not JSON: "
                            + error.getMessage(),
                    error);
        }
        for (Object step : steps) {
            if (step instanceof String name && value instanceof Map<?, ?> object) {
                value = object.get(name);
            } else if (step instanceof Integer index
                    && value instanceof List<?> list
                    && index < list.size()) {
                value = list.get(index);
            } else {
                return Optional.empty();
            }
        }
        if (value == null) {
            return Optional.empty();
        }
        return Optional.of(value instanceof String text ? text.trim() : CanonicalJson.write(value));
    }
}
