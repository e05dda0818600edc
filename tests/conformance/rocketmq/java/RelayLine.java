import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;

/**
 * One message as one line of ASCII, exact for every Java string: fields separated by blanks, bytes
 * in Base64, texts as Base64 of their UTF-16 (big-endian), "-" for null.
 */
final class RelayLine {
    private static final PrintStream OUTPUT = new PrintStream(new FileOutputStream(FileDescriptor.out));

    private RelayLine() {
    }

    /** Reserves the standard output for lines: the client's logging would also print there. */
    static void ownOutput() {
        System.setOut(System.err);
    }

    static void print(String line) {
        byte[] bytes = (line + "\n").getBytes(StandardCharsets.US_ASCII);
        synchronized (OUTPUT) {
            OUTPUT.write(bytes, 0, bytes.length);
        }
    }

    static String ofText(String text) {
        if (text == null) {
            return "-";
        }
        byte[] units = new byte[2 * text.length()];
        for (int i = 0; i < text.length(); i++) {
            units[2 * i] = (byte) (text.charAt(i) >> 8);
            units[2 * i + 1] = (byte) text.charAt(i);
        }
        return "=" + Base64.getEncoder().encodeToString(units);
    }

    static String text(String field) {
        if (field.equals("-")) {
            return null;
        }
        byte[] units = Base64.getDecoder().decode(field.substring(1));
        char[] chars = new char[units.length / 2];
        for (int i = 0; i < chars.length; i++) {
            chars[i] = (char) ((units[2 * i] & 0xff) << 8 | units[2 * i + 1] & 0xff);
        }
        return new String(chars);
    }

    static String ofBytes(byte[] bytes) {
        return "=" + new String(Base64.getEncoder().encode(bytes), StandardCharsets.US_ASCII);
    }

    static byte[] bytes(String field) {
        return Base64.getDecoder().decode(field.substring(1));
    }

    /** Alternating names and values. */
    static String ofProperties(Map<String, String> properties) {
        List<String> fields = new ArrayList<>();
        properties.forEach((name, value) -> {
            fields.add(ofText(name));
            fields.add(ofText(value));
        });
        return String.join(" ", fields);
    }
}
