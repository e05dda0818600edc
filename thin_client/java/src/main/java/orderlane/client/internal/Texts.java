package orderlane.client.internal;

import java.nio.charset.StandardCharsets;

/** Texts that go on the wire. Pure. */
public final class Texts {
    private Texts() {}

    /**
     * The text, if it can be written as UTF-8; IllegalArgumentException otherwise: half a surrogate
     * pair would arrive as a question mark.
     */
    public static String checked(String name, String text) {
        if (text == null) {
            throw new IllegalArgumentException(name + " is null: leave it out instead");
        }
        if (!StandardCharsets.UTF_8.newEncoder().canEncode(text)) {
            throw new IllegalArgumentException(
                    name + " is no valid text: it holds half a surrogate pair");
        }
        return text;
    }
}
