package io.github.orderlane.client.internal;

import java.nio.charset.StandardCharsets;

/** Checks texts for the wire. Pure. */
public final class Texts {
    private Texts() {}

    /**
     * Returns the text if it can be encoded as UTF-8. Throws IllegalArgumentException otherwise:
     * half a surrogate pair would arrive as a question mark.
     */
    public static String checked(String name, String text) {
        if (text == null) {
            throw new IllegalArgumentException(name + " is null: omit it instead");
        }
        if (!StandardCharsets.UTF_8.newEncoder().canEncode(text)) {
            throw new IllegalArgumentException(
                    name + " is not valid text: it holds half a surrogate pair");
        }
        return text;
    }
}
