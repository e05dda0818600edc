package io.github.orderlane.client.internal;

import static io.github.orderlane.client.internal.SessionStage.ALL_HELD;
import static io.github.orderlane.client.internal.SessionStage.MS;
import static io.github.orderlane.client.internal.SessionStage.START;
import static io.github.orderlane.client.internal.SessionStage.answer;
import static io.github.orderlane.client.internal.SessionStage.home;
import static io.github.orderlane.client.internal.SessionStage.session;

import io.github.orderlane.client.Message;
import io.github.orderlane.client.MessageHandler;
import io.github.orderlane.client.Observer;
import io.github.orderlane.client.Outcome;
import io.github.orderlane.client.TraceHook;
import io.github.orderlane.client.gen.consumer.AckAnswer;
import io.github.orderlane.client.gen.consumer.ConsumerService;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Consumer;
import org.apache.thrift.TBase;
import org.apache.thrift.TException;
import org.apache.thrift.protocol.TCompactProtocol;
import org.apache.thrift.protocol.TMessage;
import org.apache.thrift.protocol.TMessageType;
import org.apache.thrift.transport.TMemoryBuffer;
import org.slf4j.helpers.NOPLogger;

/**
 * Plays a consumer's first message without a proxy, to load all classes. On a busy machine that
 * takes longer than the leases of the conformance cases, which test the client, not the JVM.
 */
public final class Rehearsal {
    private Rehearsal() {}

    /** {@code seen} receives a message, as a handler would. */
    public static void play(Consumer<Message> seen) throws TException, InterruptedException {
        Session session = session(2, 2);
        var pull = Call.pull(session.beginPull(START));
        var pulled = new ConsumerService.pull_result();
        pulled.setSuccess(answer(1, 2));
        session.pullAnswered(exchange(pull, pulled), START);
        session.take(START);
        var extended = new ConsumerService.extend_result();
        extended.setSuccess(ALL_HELD.deepCopy());
        Control extend = session.beginControl(home(session), START + 1000 * MS);
        session.controlAnswered(home(session), exchange(Call.control(extend), extended));
        handle(seen);
        session.stop(START);
        var settled = new ConsumerService.settle_result();
        settled.setSuccess(ALL_HELD.deepCopy());
        Control settle = session.beginControl(home(session), START);
        session.controlAnswered(home(session), exchange(Call.control(settle), settled));
    }

    private static <T> T exchange(Call<?, T> call, TBase<?, ?> result) throws TException {
        Wire.encodeCall(call.method, call.arguments, 1);
        TMemoryBuffer buffer = new TMemoryBuffer(64);
        TCompactProtocol protocol = new TCompactProtocol(buffer);
        protocol.writeMessageBegin(new TMessage(call.method, TMessageType.REPLY, 1));
        result.write(protocol);
        return call.decode(
                Arrays.copyOf(buffer.getArray(), buffer.length()), 1, "test");
    }

    private static void handle(Consumer<Message> seen) throws InterruptedException {
        Session session = session(2, 2);
        Clock clock = new Clock();
        session.beginPull(clock.nowNs());
        session.pullAnswered(answer(1), clock.nowNs());
        ReentrantLock lock = new ReentrantLock();
        ExecutorService threads = Executors.newCachedThreadPool();
        CountDownLatch handled = new CountDownLatch(1);
        MessageHandler handler =
                message -> {
                    seen.accept(message);
                    handled.countDown();
                    return Outcome.ok();
                };
        Observer observer = new SafeObserver(List.of(new Observer() {}), new SafeLog(NOPLogger.NOP_LOGGER));
        Workers workers =
                new Workers(
                        session, Work.of(handler), settings(), threads, lock, clock, observer, new NoEvents());
        lock.lock();
        try {
            workers.turn();
        } finally {
            lock.unlock();
        }
        handled.await();
        threads.shutdown();
        threads.awaitTermination(10, TimeUnit.SECONDS);
    }

    private static ConsumerSettings settings() {
        Duration none = Duration.ZERO;
        return new ConsumerSettings(
                List.of(), "g", null, "c", 2, 2, 1, none, none, none, null, null, null, true,
                false, List.of(), new TraceHook() {}, NOPLogger.NOP_LOGGER);
    }

    private static final class NoEvents implements Feeder.Events {
        @Override
        public void changed() {}

        @Override
        public void failed(Throwable bug) {
            throw new IllegalStateException(bug);
        }

        @Override
        public void lost(HeldMessage message) {}
    }
}
