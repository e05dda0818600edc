package io.github.orderlane.client.internal;

import java.util.Arrays;
import org.slf4j.Logger;

/**
 * The application's logger. What it throws is ignored: it would end a thread of the client, and a
 * handler's message would stay leased. Even a sound logger throws if the text of a logged error
 * does.
 */
final class SafeLog {
    private final Logger log;

    SafeLog(Logger log) {
        this.log = log;
    }

    /** Logs {@code error} with its stack trace; if that fails, its class and its message. */
    void error(Throwable error, String text, Object... about) {
        boolean logged = safely(() -> log.error(text, with(about, error)));
        if (!logged) {
            safely(() -> log.error(text + ": {}", with(about, Texts.described(error))));
        }
    }

    /** As error, at a lower level. */
    void info(Throwable error, String text, Object... about) {
        boolean logged = safely(() -> log.info(text, with(about, error)));
        if (!logged) {
            safely(() -> log.info(text + ": {}", with(about, Texts.described(error))));
        }
    }

    void warn(String text, Object... about) {
        safely(() -> log.warn(text, about));
    }

    void debug(String text, Object... about) {
        safely(() -> log.debug(text, about));
    }

    private static Object[] with(Object[] about, Object last) {
        Object[] all = Arrays.copyOf(about, about.length + 1, Object[].class);
        all[about.length] = last;
        return all;
    }

    private static boolean safely(Runnable action) {
        try {
            action.run();
            return true;
        } catch (Throwable unlogged) { // there is no other place to report it
            return false;
        }
    }
}
