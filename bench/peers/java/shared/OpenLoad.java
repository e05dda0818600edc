import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * Messages that arrive at their times, until stdin ends. Bodies begin with the number of the key,
 * that of the message in its key (4 bytes each) and the due time (8 bytes). The record is a mapped
 * file, so it outlives a killed process: 32 bytes a message, key, number, due, start and end; a start
 * of 0 means that the message was not handled to its end.
 */
final class OpenLoad implements Work {
    private static final int RECORD_BYTES = 32;

    private final long clockNs; // from the clock of due times to that of this program
    private final long workNs;
    private final MappedByteBuffer record;
    private final ByteBuffer counter; // shared with the process that looks on
    private final int most;
    private final AtomicInteger begun = new AtomicInteger();
    private final AtomicInteger ended = new AtomicInteger();

    OpenLoad(Options options) throws IOException {
        clockNs = Long.parseLong(options.text("clock-ns"));
        workNs = options.number("work-us") * 1000L;
        most = options.number("open");
        record = mapped(options.text("record"), most * RECORD_BYTES);
        counter = mapped(options.text("counter"), Long.BYTES).order(ByteOrder.LITTLE_ENDIAN);
    }

    @Override
    public void handle(byte[] body) {
        long begin = System.nanoTime() + clockNs;
        int place = begun.getAndIncrement();
        if (place >= most) {
            throw new IllegalStateException("more than " + most + " messages came");
        }
        ByteBuffer head = ByteBuffer.wrap(body);
        int at = place * RECORD_BYTES;
        record.putInt(at, head.getInt(0));
        record.putInt(at + 4, head.getInt(4));
        record.putLong(at + 8, head.getLong(8));
        if (workNs > 0) {
            Work.sleep(workNs);
        }
        record.putLong(at + 24, System.nanoTime() + clockNs);
        record.putLong(at + 16, begin);
        counter.putLong(0, ended.incrementAndGet());
    }

    @Override
    public void awaitEnd() throws IOException {
        while (System.in.read() >= 0) {
            // what is sent means nothing
        }
    }

    @Override
    public void report(
            Map<String, Object> settings,
            Map<String, Object> versions,
            Map<String, Object> figures) {
        Work.print(settings, versions, figures, ended.get());
    }

    private static MappedByteBuffer mapped(String path, int bytes) throws IOException {
        try (FileChannel file =
                FileChannel.open(
                        Path.of(path),
                        StandardOpenOption.CREATE,
                        StandardOpenOption.READ,
                        StandardOpenOption.WRITE)) {
            return file.map(FileChannel.MapMode.READ_WRITE, 0, bytes);
        }
    }
}
