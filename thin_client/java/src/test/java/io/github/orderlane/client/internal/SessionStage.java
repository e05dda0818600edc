package io.github.orderlane.client.internal;

import io.github.orderlane.client.Outcome;
import io.github.orderlane.client.gen.consumer.AckAnswer;
import io.github.orderlane.client.gen.consumer.Context;
import io.github.orderlane.client.gen.consumer.Message;
import io.github.orderlane.client.gen.consumer.PullResponse;
import java.util.ArrayList;
import java.util.List;

/** Fixtures for tests of the session. */
final class SessionStage {
    static final long MS = Times.MS;
    static final long START = 1_000_000 * MS;
    static final AckAnswer ALL_HELD = new AckAnswer(List.of());

    private SessionStage() {}

    static Session session(int concurrency, int prefetch) {
        return new Session(
                new SessionOptions(
                        "g", null, "c", "v", concurrency, prefetch, 4, 20 * MS, "", "secret"),
                new Clock());
    }

    static Session session() {
        return session(2, 2);
    }

    static PullResponse answer(String home, int leaseMs, boolean oneKey, long... numbers) {
        List<Message> messages = new ArrayList<>();
        for (long number : numbers) {
            String key = oneKey ? "k" : Long.toString(number);
            messages.add(
                    new Message()
                            .setLeaseId(number)
                            .setOffset(number)
                            .setValue(new byte[0])
                            .setOrderKey(key.getBytes()));
        }
        return new PullResponse(new Context("g", "t", "q#1"), messages)
                .setLeaseMs(leaseMs)
                .setHome(home);
    }

    static PullResponse answer(long... numbers) {
        return answer("a:1", 3000, false, numbers);
    }

    static PullResponse run(long... numbers) {
        return answer("a:1", 3000, true, numbers);
    }

    static PullResponse nothing() {
        return new PullResponse(new Context(), List.of());
    }

    /** Pulls an answer and takes as many messages as handlers may have. */
    static List<HeldMessage> pulled(Session session, long nowNs, PullResponse answer) {
        session.beginPull(nowNs);
        session.pullAnswered(answer, nowNs);
        List<HeldMessage> taken = new ArrayList<>();
        for (HeldMessage each = session.take(nowNs); each != null; each = session.take(nowNs)) {
            taken.add(each);
        }
        return taken;
    }

    static Home home(Session session) {
        return session.homes.get("a:1");
    }

    static Ending retry() {
        return Ending.of(Outcome.retry());
    }
}
