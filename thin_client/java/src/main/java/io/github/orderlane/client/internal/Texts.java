package io.github.orderlane.client.internal;

import java.nio.charset.StandardCharsets;

/** Checks texts for the wire, and describes errors. Pure. */
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

    /** Returns the class of an error, and its message if it has one. Never throws. */
    static String described(Throwable error) {
        String name = error.getClass().getSimpleName();
        if (name.isEmpty()) {
            name = error.getClass().getName();
        }
        String text;
        try {
            text = error.getMessage();
        } catch (Throwable unreadable) { // it would end the thread of a handler
            text = "(its text cannot be shown: " + unreadable.getClass().getSimpleName() + ")";
        }
        return text == null ? name : name + ": " + text;
    }
}
