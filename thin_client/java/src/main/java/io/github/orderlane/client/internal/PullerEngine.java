package io.github.orderlane.client.internal;

import io.github.orderlane.client.ConnectionLostException;
import io.github.orderlane.client.Message;
import io.github.orderlane.client.OrderlaneException;
import io.github.orderlane.client.Outcome;
import io.github.orderlane.client.RefusedException;
import io.github.orderlane.client.Tls;
import io.github.orderlane.client.gen.consumer.AckAnswer;
import io.github.orderlane.client.gen.consumer.AckRequest;
import io.github.orderlane.client.gen.consumer.ExtendRequest;
import io.github.orderlane.client.gen.consumer.LeaseRef;
import io.github.orderlane.client.gen.consumer.PullRequest;
import io.github.orderlane.client.gen.consumer.PullResponse;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;

/** Single pulls, settles and extends: no threads, nothing automatic. */
public final class PullerEngine implements AutoCloseable {
    private final Servers servers;
    private final String group;
    private final List<String> topics; // null: all
    private final String clientId;
    private final String token;
    private final long timeoutNs;
    private final Clock clock = new Clock();
    private final AtomicInteger closes = new AtomicInteger(); // calls of close
    private volatile Connection connection; // of the current call; closed by any thread
    private int failures; // consecutive failures of pulls

    public PullerEngine(
            List<Address> addresses,
            Tls tls,
            String token,
            String group,
            List<String> topics,
            String clientId,
            Duration requestTimeout) {
        this.servers = new Servers(addresses, new Dialer(tls));
        this.token = token;
        this.group = group;
        this.topics = topics;
        this.clientId = clientId;
        this.timeoutNs = Times.nanos(requestTimeout);
    }

    /** Pulls up to {@code most} messages, waiting for the first; possibly none. */
    public synchronized List<Message> pull(int most, Duration wait) {
        long waitMs = Times.nanos(wait) / Times.MS;
        PullRequest request =
                new PullRequest(group)
                        .setTopics(topics)
                        .setMaxBatchSize(most)
                        .setMaxLingerTime((int) Math.min(waitMs, Integer.MAX_VALUE))
                        .setVersion(ClientNames.version())
                        .setClientId(clientId)
                        .setManyQueues(true)
                        .setToken(token);
        connect();
        long sentNs = clock.nowNs();
        PullResponse response;
        try {
            response = call(Call.pull(request), timeoutNs + waitMs * Times.MS);
        } catch (RefusedException error) {
            throw error;
        } catch (OrderlaneException error) {
            failures++;
            if (Feeder.triesElsewhere(error, failures)) {
                servers.failed(); // settles and extends do not: others lack the leases
            }
            throw error;
        }
        failures = 0;
        Home home = new Home(PullReader.home(PullReader.parts(response)));
        List<Message> messages = new ArrayList<>();
        for (Lease lease : PullReader.leases(response, home, sentNs, clock)) {
            messages.add(lease.message);
        }
        return messages;
    }

    /** Sends the outcome of a message; false: its lease had expired. */
    public synchronized boolean settle(Message message, Outcome outcome) {
        Verdicts verdicts = new Verdicts();
        verdicts.add(held(message), outcome, clock.nowNs());
        AckRequest request =
                new AckRequest(group, verdicts.batches()).setClientId(clientId).setToken(token);
        connect();
        return call(Call.control(Control.settle(request)), timeoutNs).getNotHeldSize() == 0;
    }

    /** Makes the lease expire this long from now; false: it had already expired. */
    public synchronized boolean extend(Message message, Duration time) {
        HeldMessage held = held(message);
        long ns = Times.nanos(Times.atLeastOneMs("time", time)); // with 0 ms the lease would end
        ExtendRequest request =
                new ExtendRequest(
                                group,
                                List.of(new LeaseRef(held.context, held.leaseId())),
                                (int) Math.min(ns / Times.MS, Integer.MAX_VALUE))
                        .setClientId(clientId)
                        .setToken(token);
        connect();
        long askedNs = clock.nowNs();
        AckAnswer answer = call(Call.control(Control.extend(request)), timeoutNs);
        if (answer.getNotHeldSize() > 0) {
            held.markLost();
            return false;
        }
        held.deadlineNs = askedNs + ns;
        return true;
    }

    private static HeldMessage held(Message message) {
        if (message instanceof HeldMessage held) {
            return held;
        }
        throw new IllegalArgumentException(message + " was not pulled by this library");
    }

    private void connect() {
        Connection standing = connection;
        if (standing != null && !standing.closed()) {
            return;
        }
        int before = closes.get();
        connection = dial();
        if (closes.get() != before) { // close() may not have seen it
            connection.close();
            throw new ConnectionLostException(
                    "closed while connecting to " + servers.current().address(), false, null);
        }
    }

    private Connection dial() {
        for (int left = servers.count(); ; left--) {
            try {
                return servers.dial(servers.current(), timeoutNs);
            } catch (ConnectionLostException error) {
                servers.failed();
                if (left == 1) {
                    throw error;
                }
            }
        }
    }

    private <T> T call(Call<?, T> call, long limitNs) {
        boolean usable = false;
        try {
            T answer = connection.call(call, limitNs);
            usable = true;
            return answer;
        } catch (RefusedException error) {
            usable = true;
            throw error;
        } finally {
            if (!usable) {
                connection = null; // already closed
            }
        }
    }

    /** Closes the connection, also in the middle of a call; another call opens a new one. */
    @Override
    public void close() {
        closes.incrementAndGet();
        Connection standing = connection;
        if (standing != null) {
            standing.close();
        }
    }
}
