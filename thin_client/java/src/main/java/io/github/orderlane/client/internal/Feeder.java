package io.github.orderlane.client.internal;

import io.github.orderlane.client.ConnectionLostException;
import io.github.orderlane.client.Observer;
import io.github.orderlane.client.OrderlaneException;
import io.github.orderlane.client.gen.consumer.AckAnswer;
import io.github.orderlane.client.gen.consumer.PullRequest;
import io.github.orderlane.client.gen.consumer.PullResponse;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantLock;

/**
 * Keeps a {@link Session} supplied. One thread pulls; another for each proxy that holds leases
 * settles and extends on its own connection, because a waiting pull occupies the first one.
 */
final class Feeder {
    /** Callbacks of the consumer. */
    interface Events {
        /** Called after each answer and each failure, with the lock. */
        void changed();

        /** A bug or other failure that ends the consumer; called without the lock. */
        void failed(Throwable bug);

        /** The lease of a message with a handler is lost; called without the lock. */
        void lost(HeldMessage message);
    }

    private final Session session;
    private final Servers servers;
    private final ReentrantLock lock;
    private final Clock clock;
    private final long timeoutNs;
    private final Observer observer;
    private final SafeLog log;
    private final Events events;
    private final Line pulls;
    private final Map<Home, Line> homes = new HashMap<>();
    private final List<Thread> threads = new ArrayList<>();
    private Servers.Destination pulledFrom;
    private Body unstarted = () -> {}; // of a home whose thread could not be started
    private Throwable failure;

    Feeder(
            Session session,
            ConsumerSettings settings,
            ReentrantLock lock,
            Clock clock,
            Observer observer,
            Events events) {
        this.session = session;
        this.servers = new Servers(settings.addresses(), new Dialer(settings.tls()));
        this.lock = lock;
        this.clock = clock;
        this.timeoutNs = Times.nanos(settings.requestTimeout());
        this.observer = observer;
        this.log = new SafeLog(settings.log());
        this.events = events;
        this.pulls = new Line(lock, clock, session::pullAt);
    }

    /** The failure that ended it; null while running. With the lock. */
    Throwable failure() {
        return failure;
    }

    /** Records a failure that no retry can help; the first is kept. With the lock. */
    void fail(Throwable error) {
        failure = failure == null ? error : failure;
    }

    /** Starts to pull. With the lock. */
    void start() {
        spawn("orderlane pull", this::pullForever);
    }

    /** Wakes threads whose work has become due after a change of the session. With the lock. */
    void turn() {
        pulls.turn();
        homes.values().forEach(Line::turn);
    }

    /** Ends all threads and connections; requests in flight are cancelled. */
    void close() throws InterruptedException {
        List<Thread> ending;
        lock.lock();
        try {
            pulls.close();
            homes.values().forEach(Line::close);
            ending = List.copyOf(threads);
        } finally {
            lock.unlock();
        }
        for (Thread thread : ending) {
            TimeUnit.NANOSECONDS.timedJoin(thread, timeoutNs);
        }
    }

    // ---- pulling -------------------------------------------------------------------------------

    private void pullForever() throws InterruptedException {
        while (true) {
            lock.lock();
            try {
                if (failure != null || !pulls.awaitDue()) {
                    break;
                }
            } finally {
                lock.unlock();
            }
            pullOnce();
            lock.lock();
            try {
                if (pulls.closed()) { // a thread for a new home would never end
                    break;
                }
                meetHomes();
                events.changed();
            } finally {
                lock.unlock();
            }
        }
        pulls.hangUp();
        unstarted.run(); // until its line is closed
    }

    private void pullOnce() {
        try {
            Connection connection = pulls.connected(this::dialForPulls);
            PullRequest request;
            lock.lock();
            try {
                if (session.stopping()) { // during connecting
                    return;
                }
                request = session.beginPull(clock.nowNs());
                turn(); // a waiting pull makes verdicts urgent
            } finally {
                lock.unlock();
            }
            long limitNs = request.getMaxLingerTime() * Times.MS + timeoutNs;
            PullResponse response = connection.call(Call.pull(request), limitNs);
            int pulled;
            lock.lock();
            try {
                pulled = session.pullAnswered(response, clock.nowNs());
            } finally {
                lock.unlock();
            }
            observer.onPulled(pulled);
        } catch (OrderlaneException error) {
            pulls.hangUp();
            pullFailed(error);
        }
    }

    private Connection dialForPulls() {
        lock.lock();
        try {
            session.pullsReconnect(); // after a timeout in the moment of an answer
        } finally {
            lock.unlock();
        }
        pulledFrom = servers.current();
        return servers.dial(pulledFrom, timeoutNs);
    }

    private void pullFailed(OrderlaneException error) {
        int failures;
        lock.lock();
        try {
            session.pullFailed(clock.nowNs(), jitter());
            failures = session.pullFailures();
            if (triesElsewhere(error, failures)) {
                servers.failed();
            }
            if (pulls.closed()) {
                return;
            }
            if (!error.retriable()) {
                fail(error);
            }
        } finally {
            lock.unlock();
        }
        observer.onError(error);
        if (error.retriable() && Times.isNews(failures)) {
            log.warn("pull failed, retrying: {}", error.getMessage());
        }
    }

    /** Whether the next pull goes to another address; not if an answer may be waiting here (S9). */
    static boolean triesElsewhere(OrderlaneException error, int failures) {
        boolean broke = error instanceof ConnectionLostException lost && lost.broke();
        return !(broke && failures == 1);
    }

    // ---- settling and extending ----------------------------------------------------------------

    /**
     * Keeps one thread for each proxy that the session names. If one cannot start, pulling ends, and
     * its thread releases what that proxy has leased. With the lock.
     */
    private void meetHomes() {
        for (Home home : session.homes.values()) {
            if (homes.containsKey(home)) {
                continue;
            }
            Line line = new Line(lock, clock, () -> session.controlAt(home));
            Servers.Destination from = pulledFrom;
            Body settles = () -> controlForever(home, line, from);
            homes.put(home, line);
            try {
                spawn("orderlane settle " + home.address, settles);
            } catch (RuntimeException | Error error) { // an Error: the system has no more threads
                unstarted = settles;
                fail(
                        new IllegalStateException(
                                "a thread could not be started: " + error.getMessage(), error));
                break;
            }
        }
        Set<Home> unwanted = new HashSet<>(homes.keySet());
        unwanted.removeAll(session.homes.values());
        unwanted.forEach(home -> homes.remove(home).close());
    }

    private void controlForever(Home home, Line line, Servers.Destination from)
            throws InterruptedException {
        while (true) {
            Control control;
            lock.lock();
            try {
                if (!line.awaitDue()) {
                    break;
                }
                control = session.beginControl(home, clock.nowNs());
            } finally {
                lock.unlock();
            }
            if (control != null) {
                controlOnce(home, line, from, control);
            }
        }
        line.hangUp();
    }

    private void controlOnce(
            Home home, Line line, Servers.Destination from, Control control) {
        List<HeldMessage> lost;
        try {
            Connection connection = line.connected(() -> dial(home, from));
            AckAnswer answer = connection.call(Call.control(control), timeoutNs);
            lost = controlAnswered(home, control, answer);
        } catch (OrderlaneException error) {
            line.hangUp();
            lost = controlFailed(home, error);
        }
        lost.forEach(events::lost);
        lock.lock();
        try {
            events.changed();
        } finally {
            lock.unlock();
        }
    }

    private List<HeldMessage> controlAnswered(Home home, Control control, AckAnswer answer) {
        List<HeldMessage> lost;
        int settled;
        lock.lock();
        try {
            settled = home.settling == null ? 0 : home.settling.size();
            lost = session.controlAnswered(home, answer);
        } finally {
            lock.unlock();
        }
        if (control.settle() != null) {
            observer.onSettled(settled, answer.getNotHeldSize());
        }
        return lost;
    }

    private List<HeldMessage> controlFailed(Home home, OrderlaneException error) {
        List<HeldMessage> lost;
        int failures;
        lock.lock();
        try {
            lost = session.controlFailed(home, clock.nowNs(), jitter());
            failures = home.failures;
        } finally {
            lock.unlock();
        }
        if (Times.isNews(failures)) {
            log.warn("settle or extend failed, retrying: {}", error.getMessage());
        }
        observer.onError(error);
        return lost;
    }

    /**
     * Connects to the proxy that holds the leases. Its own name for itself may be unreachable, for
     * example behind a forwarded port; then this connects to the address that returned its
     * messages. It never tries another proxy, which would not have the leases.
     */
    private Connection dial(Home home, Servers.Destination from) {
        if (home.address != null) {
            try {
                Address own = Address.parse(home.address);
                return servers.dial(new Servers.Destination(own, 0), timeoutNs);
            } catch (ConnectionLostException | IllegalArgumentException unreachable) {
                log.debug("{}: trying {}", unreachable.getMessage(), from.address());
            }
        }
        return servers.dial(from, timeoutNs);
    }

    // ---- threads -------------------------------------------------------------------------------

    private interface Body {
        void run() throws InterruptedException;
    }

    private void spawn(String name, Body body) {
        Runnable guarded =
                () -> {
                    try {
                        body.run();
                    } catch (Throwable bug) { // report it to the application
                        events.failed(bug);
                    }
                };
        Thread thread = new Thread(guarded, name);
        thread.setDaemon(true);
        thread.start();
        threads.removeIf(each -> each.getState() == Thread.State.TERMINATED);
        threads.add(thread);
    }

    private static double jitter() {
        return ThreadLocalRandom.current().nextDouble();
    }
}
