package io.github.orderlane.client.internal;

import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * Parses JSON (RFC 8259), strictly, for sharding keys only: objects become Map, arrays List, 64-bit
 * integers BigInteger, other numbers Double, the rest String, Boolean and null. The last of several
 * equal names counts. Pure.
 */
final class JsonReader {
    /** The bytes are not JSON. */
    static final class NotJson extends Exception {
        private static final long serialVersionUID = 1L;

        NotJson(String message) {
            super(message);
        }
    }

    private static final int MAX_DEPTH = 1024;
    /** Whole numbers within these bounds keep all their digits. */
    private static final BigInteger LEAST = BigInteger.TWO.pow(63).negate();
    private static final BigInteger BEYOND = BigInteger.TWO.pow(64);

    private final String text;
    private int at;
    private int depth;

    private JsonReader(String text) {
        this.text = text;
    }

    /** Parses the bytes as UTF-8 text. */
    static Object read(byte[] document) throws NotJson {
        String text;
        try {
            text = StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(document)).toString();
        } catch (CharacterCodingException error) {
            throw new NotJson("it is not UTF-8");
        }
        JsonReader reader = new JsonReader(text);
        Object value = reader.value();
        if (reader.peek() != '\0' || reader.at < text.length()) {
            throw reader.unexpected();
        }
        return value;
    }

    private Object value() throws NotJson {
        return switch (peek()) {
            case '{' -> object();
            case '[' -> array();
            case '"' -> string();
            case 't' -> word("true", Boolean.TRUE);
            case 'f' -> word("false", Boolean.FALSE);
            case 'n' -> word("null", null);
            default -> number();
        };
    }

    private Map<String, Object> object() throws NotJson {
        Map<String, Object> members = new LinkedHashMap<>();
        enter();
        if (peek() != '}') {
            do {
                if (peek() != '"') {
                    throw unexpected();
                }
                String name = string();
                expect(':');
                members.put(name, value());
            } while (skip(','));
        }
        expect('}');
        depth--;
        return members;
    }

    private List<Object> array() throws NotJson {
        List<Object> elements = new ArrayList<>();
        enter();
        if (peek() != ']') {
            do {
                elements.add(value());
            } while (skip(','));
        }
        expect(']');
        depth--;
        return elements;
    }

    private void enter() throws NotJson {
        at++;
        if (++depth > MAX_DEPTH) {
            throw new NotJson("it is nested too deeply");
        }
    }

    private String string() throws NotJson {
        StringBuilder string = new StringBuilder();
        for (at++; at < text.length(); at++) {
            char each = text.charAt(at);
            if (each == '"') {
                at++;
                return wellFormed(string.toString());
            }
            if (each < ' ') {
                throw unexpected();
            }
            string.append(each == '\\' ? escaped() : each);
        }
        throw unexpected();
    }

    private char escaped() throws NotJson {
        at++;
        char each = at < text.length() ? text.charAt(at) : '\0';
        int place = "\"\\/bfnrt".indexOf(each);
        if (place >= 0) {
            return "\"\\/\b\f\n\r\t".charAt(place);
        }
        if (each != 'u') {
            throw unexpected();
        }
        int unit = 0;
        for (int digits = 0; digits < 4; digits++) {
            at++;
            char next = at < text.length() ? text.charAt(at) : '\0';
            int digit = "0123456789abcdef".indexOf(lower(next));
            if (digit < 0) {
                throw unexpected();
            }
            unit = 16 * unit + digit;
        }
        return (char) unit;
    }

    private static char lower(char each) {
        return each >= 'A' && each <= 'F' ? (char) (each + 'a' - 'A') : each;
    }

    private static String wellFormed(String string) throws NotJson {
        if (!StandardCharsets.UTF_8.newEncoder().canEncode(string)) {
            throw new NotJson("a string holds half a surrogate pair");
        }
        return string;
    }

    private Number number() throws NotJson {
        int begin = at;
        skipChar('-');
        if (!skipChar('0')) {
            digits();
        }
        int whole = at;
        if (skipChar('.')) {
            digits();
        }
        if (skipChar('e') || skipChar('E')) {
            if (!skipChar('+')) {
                skipChar('-');
            }
            digits();
        }
        String number = text.substring(begin, at);
        if (at == whole && number.length() <= 20) {
            BigInteger value = new BigInteger(number);
            if (value.compareTo(LEAST) >= 0 && value.compareTo(BEYOND) < 0) {
                return value;
            }
        }
        double value = Double.parseDouble(number);
        if (Double.isInfinite(value)) {
            throw new NotJson("a number exceeds the range of a double");
        }
        return value;
    }

    private void digits() throws NotJson {
        int begin = at;
        while (at < text.length() && text.charAt(at) >= '0' && text.charAt(at) <= '9') {
            at++;
        }
        if (at == begin) {
            throw unexpected();
        }
    }

    private Object word(String word, Object value) throws NotJson {
        if (!text.startsWith(word, at)) {
            throw unexpected();
        }
        at += word.length();
        return value;
    }

    /** Returns the next character that is not a space, without consuming it; 0 at the end. */
    private char peek() {
        while (at < text.length() && " \t\r\n".indexOf(text.charAt(at)) >= 0) {
            at++;
        }
        return at < text.length() ? text.charAt(at) : '\0';
    }

    private boolean skip(char wanted) {
        return peek() == wanted && skipChar(wanted);
    }

    private boolean skipChar(char wanted) {
        boolean found = at < text.length() && text.charAt(at) == wanted;
        at += found ? 1 : 0;
        return found;
    }

    private void expect(char wanted) throws NotJson {
        if (!skip(wanted)) {
            throw unexpected();
        }
    }

    private NotJson unexpected() {
        return new NotJson(
                at < text.length()
                        ? "'" + text.charAt(at) + "' at " + at + " is unexpected"
                        : "it is incomplete");
    }
}
