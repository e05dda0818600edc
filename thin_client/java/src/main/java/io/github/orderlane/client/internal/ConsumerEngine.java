package io.github.orderlane.client.internal;

import io.github.orderlane.client.Observer;
import io.github.orderlane.client.OrderlaneException;
import java.time.Duration;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.BooleanSupplier;

/** The threads around a {@link Session}, from the start to the end of the drain. */
public final class ConsumerEngine implements Feeder.Events {
    /** Time for interrupted handlers to end. */
    private static final long GRACE_NS = 500 * Times.MS;

    private final ConsumerSettings settings;
    private final ReentrantLock lock = new ReentrantLock();
    private final Condition progress = lock.newCondition();
    private final CountDownLatch terminated = new CountDownLatch(1);
    private final Clock clock = new Clock();
    private final SafeLog log;
    private final Observer observer;
    private final Session session;
    private final Feeder feeder;
    private final ExecutorService ownThreads; // null: the application's
    private Workers workers; // null: not started
    private Thread shutdownHook; // null: none
    private boolean stopAsked;
    private boolean hard;

    public ConsumerEngine(ConsumerSettings settings) {
        this.settings = settings;
        log = new SafeLog(settings.log());
        observer = new SafeObserver(settings.observers(), log);
        session = new Session(settings.session(), clock);
        feeder = new Feeder(session, settings, lock, clock, observer, this);
        ownThreads = settings.executor() == null ? Executors.newCachedThreadPool(threads()) : null;
    }

    private static java.util.concurrent.ThreadFactory threads() {
        AtomicInteger number = new AtomicInteger();
        return task -> {
            Thread thread = new Thread(task, "orderlane handler " + number.incrementAndGet());
            thread.setDaemon(true);
            return thread;
        };
    }

    /**
     * Starts to pull. Throws IllegalStateException if already started or closed, or if a thread
     * cannot start; then the consumer ends.
     */
    public void start(Work work) {
        lock.lock();
        try {
            if (workers != null || stopAsked) {
                throw new IllegalStateException("a consumer is used once: create a new one");
            }
            addShutdownHook();
            workers =
                    new Workers(
                            session,
                            work,
                            settings,
                            ownThreads == null ? settings.executor() : ownThreads,
                            lock,
                            clock,
                            observer,
                            this);
            startThreads();
        } finally {
            lock.unlock();
        }
    }

    private void startThreads() {
        boolean ends = false; // a thread is there that ends what others began
        try {
            Thread drain = new Thread(this::drainWhenStopped, "orderlane consumer");
            drain.setDaemon(true);
            drain.start();
            ends = true;
            feeder.start();
        } catch (RuntimeException | Error error) { // an Error: the system has no more threads
            IllegalStateException failure =
                    new IllegalStateException(
                            "a thread could not be started: " + error.getMessage(), error);
            feeder.fail(failure);
            stopAsked = true;
            changed();
            if (!ends) {
                end();
            }
            throw failure;
        }
    }

    private void addShutdownHook() {
        if (!settings.drainOnShutdown()) {
            return;
        }
        Thread hook = new Thread(this::close, "orderlane shutdown");
        try {
            Runtime.getRuntime().addShutdownHook(hook);
        } catch (IllegalStateException error) {
            throw new IllegalStateException(
                    "the JVM is shutting down: a consumer cannot start now", error);
        }
        shutdownHook = hook;
    }

    /** Stops pulling; a second call interrupts running handlers. */
    public void stop() {
        lock.lock();
        try {
            hard |= stopAsked;
            beginStop();
        } finally {
            lock.unlock();
        }
    }

    /** Stops pulling, and waits until handlers have ended or the drain times out. */
    public void close() {
        lock.lock();
        try {
            if (!stopAsked) {
                beginStop();
            }
            if (workers != null && workers.isHandler(Thread.currentThread())) {
                return; // it would wait for itself
            }
        } finally {
            lock.unlock();
        }
        boolean interrupted = false;
        while (true) {
            try {
                terminated.await();
                break;
            } catch (InterruptedException hurry) {
                interrupted = true;
                stop();
            }
        }
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    private void beginStop() {
        stopAsked = true;
        session.stop(clock.nowNs());
        if (workers == null) {
            end();
        }
        changed();
    }

    /** Waits for the end; false: timed out. Throws the failure that ended it, if any. */
    public boolean awaitTermination(Duration limit) throws InterruptedException {
        if (!terminated.await(Times.nanos(limit), TimeUnit.NANOSECONDS)) {
            return false;
        }
        Throwable failure;
        lock.lock();
        try {
            failure = feeder.failure();
        } finally {
            lock.unlock();
        }
        if (failure instanceof OrderlaneException known) {
            throw known;
        }
        if (failure != null) {
            String text = "the consumer failed: " + failure.getMessage();
            throw new IllegalStateException(text, failure);
        }
        return true;
    }

    @Override
    public void changed() {
        if (workers != null) {
            try {
                workers.turn();
            } catch (RuntimeException | Error error) { // an Error: the system has no more threads
                feeder.fail(
                        new IllegalStateException(
                                "the executor refuses handlers: " + error.getMessage(), error));
            }
        }
        if (feeder.failure() != null && !session.stopping()) {
            session.stop(clock.nowNs());
        }
        feeder.turn();
        if (session.stopping()) {
            progress.signalAll();
        }
    }

    @Override
    public void failed(Throwable bug) {
        lock.lock();
        try {
            feeder.fail(bug);
            changed();
        } finally {
            lock.unlock();
        }
    }

    @Override
    public void lost(HeldMessage message) {
        workers.lost(message);
    }

    @Override
    public String toString() {
        lock.lock();
        try {
            return "<OrderlaneConsumer " + session + ">";
        } finally {
            lock.unlock();
        }
    }

    // ---- the drain -----------------------------------------------------------------------------

    /** Waits for handlers, releases the rest, sends the verdicts, and ends. */
    private void drainWhenStopped() {
        lock.lock();
        try {
            while (!session.stopping()) {
                progress.await();
            }
            if (!reached(session::drained, Times.nanos(settings.drainTimeout()))) {
                hard = false; // handled
                workers.abandonAll();
                reached(workers::idle, GRACE_NS);
                reached(session::flushed, Times.nanos(settings.requestTimeout()));
            }
        } catch (InterruptedException error) {
            feeder.fail(error);
        } finally {
            lock.unlock();
            end();
        }
    }

    private boolean reached(BooleanSupplier condition, long limitNs) throws InterruptedException {
        long endNs = System.nanoTime() + limitNs;
        while (!condition.getAsBoolean()) {
            long leftNs = endNs - System.nanoTime();
            if (leftNs <= 0 || hard) {
                return false;
            }
            progress.awaitNanos(leftNs);
        }
        return true;
    }

    private void end() {
        try {
            feeder.close();
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
        if (ownThreads != null) {
            ownThreads.shutdown(); // a handler still running is abandoned
        }
        terminated.countDown();
        try {
            if (shutdownHook != null) {
                Runtime.getRuntime().removeShutdownHook(shutdownHook);
            }
        } catch (IllegalStateException shuttingDown) {
            log.debug("the consumer ended because the JVM is shutting down");
        }
    }
}
