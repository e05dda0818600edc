package io.github.orderlane.client.internal;

import java.io.IOException;
import java.io.InputStream;
import java.net.InetAddress;
import java.net.UnknownHostException;
import java.security.SecureRandom;
import java.util.HexFormat;
import java.util.Locale;
import java.util.Properties;

/** Generates names and ids. */
public final class ClientNames {
    private static final SecureRandom RANDOM = new SecureRandom();
    private static final String VERSION = readVersion();

    private ClientNames() {}

    /** Name and version of this library, shown in the proxy's statistics. */
    static String version() {
        return VERSION;
    }

    /** {@code host@process-1f2e}: unique, and shows operators where the client runs. */
    public static String clientId() {
        String host;
        try {
            host = InetAddress.getLocalHost().getHostName();
        } catch (UnknownHostException nameless) {
            host = "localhost";
        }
        return host + "@" + ProcessHandle.current().pid() + "-" + hex(2);
    }

    /** A unique id: 32 upper-case hexadecimal digits. */
    static String messageId() {
        return hex(16).toUpperCase(Locale.ROOT);
    }

    /** Random bytes, as hexadecimal digits. */
    static String hex(int bytes) {
        byte[] random = new byte[bytes];
        RANDOM.nextBytes(random);
        return HexFormat.of().formatHex(random);
    }

    private static String readVersion() {
        Properties properties = new Properties();
        try (InputStream file =
                ClientNames.class.getResourceAsStream("/orderlane/client/version.properties")) {
            if (file != null) {
                properties.load(file);
            }
        } catch (IOException unreadable) {
            // the version is for statistics only
        }
        String version = properties.getProperty("version");
        return version == null ? "orderlane-java" : "orderlane-java/" + version;
    }
}
