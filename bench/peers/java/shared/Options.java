import java.util.HashMap;
import java.util.Map;

/** The arguments of a program: {@code --name value}, each with a value. */
final class Options {
    private final Map<String, String> given = new HashMap<>();

    Options(String[] arguments) {
        for (int i = 0; i < arguments.length; i += 2) {
            given.put(arguments[i].substring(2), arguments[i + 1]);
        }
    }

    String text(String name) {
        String value = given.get(name);
        if (value == null) {
            throw new IllegalArgumentException("--" + name + " is missing");
        }
        return value;
    }

    boolean has(String name) {
        return given.containsKey(name);
    }

    int number(String name) {
        return Integer.parseInt(text(name));
    }
}
