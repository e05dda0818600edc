import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.util.Map;
import java.util.concurrent.locks.LockSupport;

/** Work of a consumer on its messages: a backlog ({@link Job}) or an open load. */
interface Work {
    /** Returns the work that the options describe. */
    static Work of(Options options) throws IOException {
        return options.has("open") ? new OpenLoad(options) : new Job(options);
    }

    /** Handles one message, on any thread. */
    void handle(byte[] body);

    /** Waits until all messages were handled, or the load has ended. */
    void awaitEnd() throws InterruptedException, IOException;

    /** Writes the record, and prints the line with the figures. */
    void report(
            Map<String, Object> settings,
            Map<String, Object> versions,
            Map<String, Object> figures)
            throws IOException;

    /** Prints the line with the figures. */
    static void print(
            Map<String, Object> settings,
            Map<String, Object> versions,
            Map<String, Object> figures,
            int handled) {
        var system =
                (com.sun.management.OperatingSystemMXBean)
                        ManagementFactory.getOperatingSystemMXBean();
        System.out.println(
                Json.line(
                        Map.of(
                                "settings", settings,
                                "versions", versions,
                                "figures", figures,
                                "handled", handled,
                                "cpu_s", system.getProcessCpuTime() / 1e9)));
        System.out.flush();
    }

    /** Sleeps for exactly that time. */
    static void sleep(long ns) {
        long until = System.nanoTime() + ns;
        for (long left = ns; left > 0; left = until - System.nanoTime()) {
            LockSupport.parkNanos(left);
        }
    }
}
