package io.github.orderlane.client.internal;

import java.util.ArrayList;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** The host and port of one proxy. */
public record Address(String host, int port) {
    static final int DEFAULT_PORT = 9713;

    private static final Pattern TEXT =
            Pattern.compile(
                    "(?:\\[(?<v6>[0-9a-fA-F:.]+)]|(?<host>[^\\s:\\[\\]]+))(?::(?<port>\\d{1,5}))?");

    /**
     * Parses {@code host:port}, {@code host} (port 9713) or {@code [IPv6]:port}; throws
     * IllegalArgumentException for anything else.
     */
    static Address parse(String text) {
        Matcher match = TEXT.matcher(text.strip());
        int port = 0;
        if (match.matches()) {
            String digits = match.group("port");
            port = digits == null ? DEFAULT_PORT : Integer.parseInt(digits);
        }
        if (port <= 0 || port > 65_535) {
            throw new IllegalArgumentException(
                    "'" + text + "' is not a proxy address:"
                            + " expected host:port, for example proxy:9713");
        }
        String v6 = match.group("v6");
        return new Address(v6 == null ? match.group("host") : v6, port);
    }

    /** Parses addresses; each text holds one, or several separated by commas. */
    public static List<Address> parseAll(List<String> servers) {
        List<Address> addresses = new ArrayList<>();
        for (String each : servers) {
            for (String text : each.split(",", -1)) {
                addresses.add(parse(text));
            }
        }
        if (addresses.isEmpty()) {
            throw new IllegalArgumentException(
                    "no proxy address given: expected at least one host:port");
        }
        return List.copyOf(addresses);
    }

    @Override
    public String toString() {
        return (host.contains(":") ? "[" + host + "]" : host) + ":" + port;
    }
}
