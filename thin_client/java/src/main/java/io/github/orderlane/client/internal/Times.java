package io.github.orderlane.client.internal;

import java.time.Duration;

/** Units, and waits after failures. Pure. */
public final class Times {
    static final long MS = 1_000_000;
    private static final long FIRST_BACKOFF_NS = 50 * MS;
    private static final long MAX_BACKOFF_NS = 5_000 * MS;
    /** A longer duration counts as this. */
    public static final Duration LONGEST = Duration.ofDays(10_000);

    private Times() {}

    /** Returns the wait after consecutive failures; jitter in [0, 1) spreads clients. */
    static long backoffNs(int failures, double jitter) {
        long longest = Math.min(FIRST_BACKOFF_NS << Math.min(failures - 1, 10), MAX_BACKOFF_NS);
        return (long) (longest * (0.5 + jitter / 2));
    }

    /**
     * True for the 1st, 2nd, 4th, 8th … consecutive failure, so that a long outage is logged ever
     * less often.
     */
    static boolean isNews(int failures) {
        return (failures & (failures - 1)) == 0;
    }

    /** Nanoseconds of a duration of 0 or more; an unlimited one becomes many years. */
    static long nanos(Duration duration) {
        return (duration.compareTo(LONGEST) > 0 ? LONGEST : duration).toNanos();
    }

    /**
     * Returns the duration if it is 0 or more. Throws IllegalArgumentException that names the
     * option otherwise.
     */
    public static Duration checked(String name, Duration duration) {
        if (duration.isNegative()) {
            throw new IllegalArgumentException(
                    name + " is " + duration + ": expected 0 or more");
        }
        return duration;
    }

    /**
     * Returns the duration if it is 1 ms or more. Throws IllegalArgumentException that names the
     * option otherwise.
     */
    static Duration atLeastOneMs(String name, Duration duration) {
        if (duration.compareTo(Duration.ofMillis(1)) < 0) {
            throw new IllegalArgumentException(
                    name + " is " + duration + ": expected at least 1 ms");
        }
        return duration;
    }

    /** In readable form: {@code 3 s}, {@code 0.25 s}. */
    static String seconds(long nanos) {
        String text = String.format(java.util.Locale.ROOT, "%.3f", nanos / 1e9);
        return text.replaceAll("\\.?0+$", "") + " s";
    }
}
