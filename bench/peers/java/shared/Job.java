import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * A backlog: record a message's start, work, record its end, until all messages were handled. Records
 * are preallocated arrays; their reader judges the order later.
 */
final class Job implements Work {
    private static final int RECORD_BYTES = 24;

    private final int messages;
    private final long seed;
    private final long leastWorkNs;
    private final long mostWorkNs;
    private final Path record;
    private final ByteBuffer counter; // shared with the process that looks on
    private final int[] keys;
    private final int[] numbers;
    private final long[] begins;
    private final long[] ends;
    private final AtomicInteger begun = new AtomicInteger();
    private final AtomicInteger ended = new AtomicInteger();
    private final CountDownLatch all = new CountDownLatch(1);
    private final long withinS;

    Job(Options options) throws IOException {
        messages = options.number("messages");
        withinS = options.number("within-s");
        seed = options.number("seed");
        mostWorkNs = options.number("work-us") * 1000L;
        leastWorkNs = options.number("least-work-us") * 1000L;
        record = Path.of(options.text("record"));
        int room = 2 * messages; // what comes again is noted as well
        keys = new int[room];
        numbers = new int[room];
        begins = new long[room];
        ends = new long[room];
        try (FileChannel file =
                FileChannel.open(
                        Path.of(options.text("counter")),
                        StandardOpenOption.READ,
                        StandardOpenOption.WRITE)) {
            counter = file.map(FileChannel.MapMode.READ_WRITE, 0, Long.BYTES);
            counter.order(ByteOrder.LITTLE_ENDIAN);
        }
    }

    @Override
    public void handle(byte[] body) {
        int place = begun.getAndIncrement();
        if (place >= keys.length) {
            throw new IllegalStateException("twice as many messages came as there are");
        }
        int at = endOfKey(body, "{\"key\":\"key-".length());
        keys[place] = numberAt(body, "{\"key\":\"key-".length());
        numbers[place] = numberAt(body, at + "\",\"n\":".length());
        begins[place] = System.nanoTime();
        if (mostWorkNs > 0) {
            work(keys[place], numbers[place]);
        }
        ends[place] = System.nanoTime();
        int done = ended.incrementAndGet();
        counter.putLong(0, done);
        if (done == messages) {
            all.countDown();
        }
    }

    @Override
    public void awaitEnd() throws InterruptedException {
        if (!all.await(withinS, TimeUnit.SECONDS)) {
            throw new IllegalStateException(
                    ended.get() + " of " + messages + " messages within " + withinS + " s");
        }
    }

    @Override
    public void report(
            Map<String, Object> settings,
            Map<String, Object> versions,
            Map<String, Object> figures)
            throws IOException {
        int count = Math.min(begun.get(), keys.length);
        ByteBuffer bytes = ByteBuffer.allocate(count * RECORD_BYTES);
        for (int i = 0; i < count; i++) {
            bytes.putInt(keys[i]).putInt(numbers[i]).putLong(begins[i]).putLong(ends[i]);
        }
        bytes.flip();
        try (FileChannel file =
                FileChannel.open(record, StandardOpenOption.CREATE, StandardOpenOption.WRITE)) {
            while (bytes.hasRemaining()) {
                file.write(bytes);
            }
        }
        Work.print(settings, versions, figures, count);
    }

    private void work(int key, int number) {
        long ns = mostWorkNs;
        if (leastWorkNs < mostWorkNs) {
            double chance = (mixed(mixed(seed) + ((long) key << 32) + number) >>> 11) * 0x1p-53;
            ns = leastWorkNs + (long) (chance * (mostWorkNs - leastWorkNs));
        }
        Work.sleep(ns);
    }

    /** Derives a message's work from its key and number, the same in all programs (splitmix64). */
    private static long mixed(long value) {
        long x = value + 0x9E3779B97F4A7C15L;
        x = (x ^ (x >>> 30)) * 0xBF58476D1CE4E5B9L;
        x = (x ^ (x >>> 27)) * 0x94D049BB133111EBL;
        return x ^ (x >>> 31);
    }

    private static int numberAt(byte[] body, int start) {
        int value = 0;
        for (int i = start; body[i] >= '0' && body[i] <= '9'; i++) {
            value = 10 * value + body[i] - '0';
        }
        return value;
    }

    private static int endOfKey(byte[] body, int start) {
        int end = start;
        while (body[end] != '"') {
            end++;
        }
        return end;
    }
}
