package io.github.orderlane.client.internal;

import java.math.BigDecimal;
import java.math.MathContext;
import java.math.RoundingMode;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/**
 * Writes JSON values in one canonical form, the proxy's: members sorted by code point, no spaces,
 * 64-bit integers in full ({@code 1.0} is {@code 1}), other numbers as doubles in the fewest digits
 * that round-trip. Pure.
 */
final class CanonicalJson {
    private static final int MAX_DEPTH = 100;
    private static final List<RoundingMode> CLOSEST_FIRST =
            List.of(RoundingMode.HALF_EVEN, RoundingMode.UP, RoundingMode.DOWN);

    private CanonicalJson() {}

    /**
     * {@code value}: from {@link JsonReader}. Throws IllegalArgumentException if it is nested too
     * deeply.
     */
    static String write(Object value) {
        StringBuilder text = new StringBuilder();
        write(value, text, MAX_DEPTH);
        return text.toString();
    }

    private static void write(Object value, StringBuilder text, int room) {
        if (room == 0 && (value instanceof List<?> || value instanceof Map<?, ?>)) {
            throw new IllegalArgumentException(
                    "the sharding key nests more than " + MAX_DEPTH
                            + " arrays and objects");
        }
        if (value instanceof String string) {
            writeString(string, text);
        } else if (value instanceof Double number) {
            text.append(number(number));
        } else if (value instanceof List<?> list) {
            String separator = "[";
            for (Object each : list) {
                text.append(separator);
                write(each, text, room - 1);
                separator = ",";
            }
            text.append(list.isEmpty() ? "[]" : "]");
        } else if (value instanceof Map<?, ?> object) {
            Map<String, Object> sorted = new TreeMap<>(CanonicalJson::byCodePoint);
            object.forEach((name, member) -> sorted.put((String) name, member));
            String separator = "{";
            for (Map.Entry<String, Object> each : sorted.entrySet()) {
                text.append(separator);
                writeString(each.getKey(), text);
                text.append(':');
                write(each.getValue(), text, room - 1);
                separator = ",";
            }
            text.append(sorted.isEmpty() ? "{}" : "}");
        } else {
            text.append(value); // a whole number, true, false, null
        }
    }

    private static int byCodePoint(String one, String other) {
        int end = Math.min(one.length(), other.length());
        for (int i = 0; i < end; i++) {
            if (one.charAt(i) != other.charAt(i)) {
                return Integer.compare(rank(one.charAt(i)), rank(other.charAt(i)));
            }
        }
        return Integer.compare(one.length(), other.length());
    }

    /** Sorts units of surrogate pairs behind all others. */
    private static int rank(char unit) {
        return Character.isSurrogate(unit) ? unit + 0x10000 : unit;
    }

    private static void writeString(String string, StringBuilder text) {
        text.append('"');
        for (int i = 0; i < string.length(); i++) {
            char each = string.charAt(i);
            int escape = "\b\t\n\f\r\"\\".indexOf(each);
            if (escape >= 0) {
                text.append('\\').append("btnfr\"\\".charAt(escape));
            } else if (each < ' ') {
                text.append(String.format("\\u%04x", (int) each));
            } else {
                text.append(each);
            }
        }
        text.append('"');
    }

    /** Plain from 0.00001 on, in full within 64 bits; with an exponent elsewhere. */
    static String number(double value) {
        if (value == Math.rint(value) && value >= -0x1p63 && value < 0x1p64) {
            return new BigDecimal(value).toBigInteger().toString();
        }
        BigDecimal shortest = shortest(value);
        String digits = shortest.unscaledValue().abs().toString();
        int point = digits.length() - shortest.scale(); // digits before the point
        String sign = value < 0 ? "-" : "";
        if (point > 17 || point <= -5) {
            String rest = digits.length() > 1 ? "." + digits.substring(1) : "";
            int exponent = point - 1;
            return sign + digits.charAt(0) + rest + "e" + (exponent < 0 ? "" : "+") + exponent;
        }
        if (point <= 0) {
            return sign + "0." + "0".repeat(-point) + digits;
        }
        if (digits.length() <= point) {
            return sign + digits + "0".repeat(point - digits.length());
        }
        return sign + digits.substring(0, point) + "." + digits.substring(point);
    }

    /**
     * The fewest digits that identify this double, and of several such numbers the closest; of two
     * equally close ones the even one, as in the other languages. A power of two has more room
     * above than below, so that the number on the far side may be the only one.
     */
    private static BigDecimal shortest(double value) {
        BigDecimal exact = new BigDecimal(value);
        for (int digits = 1; digits < 17; digits++) {
            for (RoundingMode mode : CLOSEST_FIRST) {
                BigDecimal rounded = exact.round(new MathContext(digits, mode));
                if (rounded.doubleValue() == value) {
                    return rounded.stripTrailingZeros();
                }
            }
        }
        return exact.round(new MathContext(17, RoundingMode.HALF_EVEN)).stripTrailingZeros();
    }
}
