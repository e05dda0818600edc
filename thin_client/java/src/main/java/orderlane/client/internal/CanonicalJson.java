package orderlane.client.internal;

import java.math.BigDecimal;
import java.math.MathContext;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/**
 * JSON values as one text each, after RFC 8785: members sorted, no spaces, numbers as short as they
 * can be ({@code 1.0} is {@code 1}). Other than there whole numbers keep all their digits. Pure.
 */
final class CanonicalJson {
    private CanonicalJson() {}

    /** {@code value}: as {@link JsonReader} gives it. */
    static String write(Object value) {
        StringBuilder text = new StringBuilder();
        write(value, text);
        return text.toString();
    }

    private static void write(Object value, StringBuilder text) {
        if (value instanceof String string) {
            writeString(string, text);
        } else if (value instanceof Double number) {
            text.append(number(number));
        } else if (value instanceof List<?> list) {
            String separator = "[";
            for (Object each : list) {
                text.append(separator);
                write(each, text);
                separator = ",";
            }
            text.append(list.isEmpty() ? "[]" : "]");
        } else if (value instanceof Map<?, ?> object) {
            Map<String, Object> sorted = new TreeMap<>();
            object.forEach((name, member) -> sorted.put((String) name, member));
            String separator = "{";
            for (Map.Entry<String, Object> each : sorted.entrySet()) {
                text.append(separator);
                writeString(each.getKey(), text);
                text.append(':');
                write(each.getValue(), text);
                separator = ",";
            }
            text.append(sorted.isEmpty() ? "{}" : "}");
        } else {
            text.append(value); // a whole number, true, false, null
        }
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

    /** Whole numbers in full, up to what 64 bits hold; others as JavaScript writes them. */
    static String number(double value) {
        if (value == Math.rint(value) && value >= -0x1p63 && value < 0x1p64) {
            return new BigDecimal(value).toBigInteger().toString();
        }
        BigDecimal shortest = shortest(value);
        String digits = shortest.unscaledValue().abs().toString();
        int point = digits.length() - shortest.scale(); // digits before the point
        String sign = value < 0 ? "-" : "";
        if (point > 21 || point <= -6) {
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

    /** As few digits as name this double and no other. */
    private static BigDecimal shortest(double value) {
        BigDecimal exact = new BigDecimal(value);
        for (int digits = 1; digits < 17; digits++) {
            BigDecimal rounded = exact.round(new MathContext(digits));
            if (rounded.doubleValue() == value) {
                return rounded.stripTrailingZeros();
            }
        }
        return exact.round(new MathContext(17)).stripTrailingZeros();
    }
}
