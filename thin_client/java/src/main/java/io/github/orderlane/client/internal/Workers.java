package io.github.orderlane.client.internal;

import io.github.orderlane.client.Observer;
import io.github.orderlane.client.TraceHook;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.Executor;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.locks.ReentrantLock;

/**
 * Runs handlers. A worker takes message after message, and ends when there is none, so a burst
 * costs one executor task per active key instead of one per message.
 */
final class Workers {
    /** A start that takes longer is repeated, with twice the patience each time. */
    private static final long START_DUE_NS = 5_000 * Times.MS;

    private static final long MAX_START_DUE_NS = 60_000 * Times.MS;

    private final Session session;
    private final Work work;
    private final Executor executor;
    private final ReentrantLock lock;
    private final Clock clock;
    private final Observer observer;
    private final TraceHook trace;
    private final SafeLog log;
    private final boolean interrupts;
    private final Feeder.Events events;
    private final Set<Handling> active = new HashSet<>();
    private int workers;
    private boolean starting; // the latest worker has not taken its first message yet
    private long latest; // its number
    private long startDueNs; // it should have by then
    private int overdue; // consecutive starts that took longer

    Workers(
            Session session,
            Work work,
            ConsumerSettings settings,
            Executor executor,
            ReentrantLock lock,
            Clock clock,
            Observer observer,
            Feeder.Events events) {
        this.session = session;
        this.work = work;
        this.executor = executor;
        this.lock = lock;
        this.clock = clock;
        this.observer = observer;
        this.trace = settings.trace();
        this.log = new SafeLog(settings.log());
        this.interrupts = settings.interruptHandlers();
        this.events = events;
    }

    /** True while no handler runs. With the lock. */
    boolean idle() {
        return active.isEmpty();
    }

    /** True if this thread runs a handler. With the lock. */
    boolean isHandler(Thread thread) {
        return active.stream().anyMatch(handling -> handling.thread() == thread);
    }

    /**
     * Starts another worker if messages wait; that one starts the next. Throws what the executor
     * throws. With the lock.
     */
    void turn() {
        if (session.stopping() || session.takeable() <= 0) {
            return;
        }
        if (starting) {
            if (clock.nowNs() >= startDueNs) {
                startAgain();
            }
            return;
        }
        if (workers >= session.options.concurrency()) {
            return;
        }
        starting = true;
        workers++;
        overdue = 0;
        startDueNs = clock.nowNs() + START_DUE_NS;
        try {
            execute();
        } catch (Throwable error) {
            starting = false;
            workers--;
            throw error;
        }
    }

    private void execute() {
        long number = latest + 1;
        executor.execute(() -> run(number));
        latest = number; // unless it was refused
    }

    /**
     * Starts a worker in place of one that the executor has accepted but not begun: an executor may
     * drop tasks silently, and no handler would ever run. A busy one begins the first too, later.
     * With the lock.
     */
    private void startAgain() {
        long patienceNs = patienceNs();
        overdue++;
        startDueNs = clock.nowNs() + patienceNs();
        log.warn(
                "the executor accepted a handler {} ago and has not begun it: it is busy, or has"
                        + " dropped it; starting it again",
                Times.seconds(patienceNs));
        try {
            execute();
        } catch (RejectedExecutionException full) {
            if (executor instanceof ExecutorService service && service.isShutdown()) {
                throw full;
            }
            log.warn("the executor refuses it: {}", full.getMessage());
        }
    }

    private long patienceNs() {
        return Math.min(START_DUE_NS << Math.min(overdue, 10), MAX_START_DUE_NS);
    }

    /** Abandons all handlers after the drain timeout. With the lock. */
    void abandonAll() {
        if (interrupts) {
            active.forEach(Handling::abandon);
        }
    }

    /** Reports to a message's handler, while it runs, that its lease is lost. Without the lock. */
    void lost(HeldMessage message) {
        Handling handling = message.handling;
        if (handling != null) {
            handling.whileRunning(() -> tellLost(message, handling));
        }
    }

    private void tellLost(HeldMessage message, Handling handling) {
        log.warn(
                "lease of {} lost during handling: it may be delivered to another client", message);
        observer.onLeaseLost(message);
        for (Runnable told : message.takeListeners()) {
            try {
                told.run();
            } catch (Throwable error) {
                log.error(error, "a callback for a lost lease failed");
            }
        }
        if (interrupts) {
            handling.interrupt();
        }
    }

    private void run(long number) {
        if (lock.isHeldByCurrentThread()) {
            throw new RejectedExecutionException(
                    "it runs handlers on the calling thread: use an executor with its own threads");
        }
        try {
            Handling next = first(number);
            while (next != null) {
                next = handle(next);
            }
        } catch (Throwable bug) { // report it to the application
            events.failed(bug);
            throw bug;
        }
    }

    private Handling first(long number) {
        lock.lock();
        try {
            if (number == latest) {
                starting = false;
            } else { // another one counts in its place
                if (workers >= session.options.concurrency()) {
                    return null;
                }
                workers++;
            }
            Handling first = take();
            events.changed();
            return first;
        } finally {
            lock.unlock();
        }
    }

    /** Takes the next messages; null: there are none, and this worker ends. With the lock. */
    private Handling take() {
        List<HeldMessage> run = List.of();
        if (!session.stopping()) {
            long nowNs = clock.nowNs();
            if (work.takesRuns()) {
                run = session.takeRun(nowNs);
            } else {
                HeldMessage message = session.take(nowNs);
                run = message == null ? run : List.of(message);
            }
        }
        if (run.isEmpty()) {
            workers--;
            return null;
        }
        Handling handling = new Handling(run);
        run.forEach(message -> message.handling = handling);
        active.add(handling);
        return handling;
    }

    private Handling handle(Handling handling) {
        List<HeldMessage> run = handling.run;
        observer.onHandleStart(run.get(0));
        TraceHook.Scope scope = begin(run.get(0));
        Work.Result result = work.handle(run, observer);
        boolean abandoned = handling.end(); // waits for callbacks about lost leases
        run.forEach(HeldMessage::endHandling);
        end(scope);
        int marked = result.marked();
        Ending ending = result.ending();
        if (ending.error() != null) {
            ending = judge(run.get(Math.min(marked, run.size() - 1)), ending, abandoned);
        }
        // Report ends before the session lets the key's next message start elsewhere.
        int done = tellEnds(run, marked, ending);
        lock.lock();
        try {
            active.remove(handling);
            session.settle(run, done, ending, clock.nowNs());
            Handling next = take();
            events.changed();
            return next;
        } finally {
            lock.unlock();
        }
    }

    /** Reports the ends of messages from the first unmarked one; returns how many are ok. */
    private int tellEnds(List<HeldMessage> run, int marked, Ending ending) {
        int done = marked;
        while (done < run.size()) {
            observer.onHandleEnd(run.get(done), ending.outcome());
            if (!ending.isOk()) {
                return done;
            }
            done++;
            if (done < run.size()) {
                observer.onHandleStart(run.get(done));
            }
        }
        return done;
    }

    private Ending judge(HeldMessage message, Ending ending, boolean abandoned) {
        if (abandoned) {
            log.warn("handling {} was ended by the drain; the message is released", message);
            return Ending.DEFER;
        }
        if (message.leaseLost()) {
            log.info(ending.error(), "handling {} failed after its lease was lost", message);
        } else {
            log.error(ending.error(), "handling {} failed; the message will be retried", message);
        }
        return ending;
    }

    private TraceHook.Scope begin(HeldMessage message) {
        try {
            return trace.incoming(message);
        } catch (Throwable error) { // even an Error must not end the consumer
            log.error(error, "the trace hook failed");
            return null;
        }
    }

    private void end(TraceHook.Scope scope) {
        try {
            if (scope != null) {
                scope.close();
            }
        } catch (Throwable error) { // even an Error must not end the consumer
            log.error(error, "the trace hook failed");
        }
    }
}
