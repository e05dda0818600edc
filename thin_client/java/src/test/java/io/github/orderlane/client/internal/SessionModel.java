package io.github.orderlane.client.internal;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.orderlane.client.Outcome;
import io.github.orderlane.client.gen.consumer.AckAnswer;
import io.github.orderlane.client.gen.consumer.Context;
import io.github.orderlane.client.gen.consumer.LeaseRef;
import io.github.orderlane.client.gen.consumer.Message;
import io.github.orderlane.client.gen.consumer.PullRequest;
import io.github.orderlane.client.gen.consumer.PullResponse;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.OptionalLong;
import java.util.Set;
import java.util.stream.Collectors;

/** Plays one random story with a session, and compares it with the facts. */
final class SessionModel extends SessionFacts {
    SessionModel(long seed, boolean batches) {
        super(seed, batches);
    }

    // ---- steps ---------------------------------------------------------------------------------

    void step() {
        switch (random.nextInt(10)) {
            case 0, 1 -> take();
            case 2, 3 -> settle();
            case 4 -> pass();
            case 5, 6 -> pull();
            case 7 -> beginControls();
            case 8 -> endControl();
            default -> {
                if (given.size() > 12 && random.nextInt(6) == 0) {
                    stop();
                }
            }
        }
    }

    private void take() {
        told.add("take");
        while (true) {
            List<HeldMessage> run;
            if (batches) {
                run = session.takeRun(now);
            } else {
                HeldMessage message = session.take(now);
                run = message == null ? List.of() : List.of(message);
            }
            if (run.isEmpty()) {
                return;
            }
            Set<String> openKeys = open().stream().map(e -> e.key).collect(Collectors.toSet());
            for (HeldMessage message : run) {
                Given each = given.get(message.leaseId());
                assertNull(each.message, "delivered twice");
                assertFalse(each.lost);
                assertTrue(each.deadlineNs > now, "S4");
                assertTrue(each.key == null || !openKeys.contains(each.key), "S6");
                assertEquals(given.get(run.get(0).leaseId()).run, each.run, "S10");
                each.message = message;
                each.batch = run;
            }
            assertTrue(handlers() <= CONCURRENCY, "S7");
            assertFalse(session.stopping(), "S8");
        }
    }

    private void settle() {
        List<Given> open = open();
        if (open.isEmpty()) {
            return;
        }
        List<HeldMessage> run = open.get(random.nextInt(open.size())).batch;
        int done = random.nextInt(3) > 0 ? run.size() : random.nextInt(run.size());
        Ending[] bad = {
            Ending.of(Outcome.retry()), Ending.of(Outcome.reject("bad")), Ending.DEFER,
            Ending.failed(new IllegalStateException("x"))
        };
        Ending ending = done == run.size() ? Ending.OK : bad[random.nextInt(bad.length)];
        told.add("settle " + run + " done " + done + " " + ending);
        session.settle(run, done, ending, now);
        Given first = given.get(run.get(0).leaseId());
        for (int i = 0; i < run.size(); i++) {
            Given each = given.get(run.get(i).leaseId());
            each.outcome = i < done ? "ok" : i == done ? ending.outcome().kind() : "defer";
            each.settledNs = now;
        }
        boolean failure = done < run.size();
        boolean keyGoesOn =
                first.key != null && held().stream().anyMatch(e -> first.key.equals(e.key));
        for (HeldMessage message : run) {
            given.get(message.leaseId()).hurry = failure || !keyGoesOn;
        }
        for (Given each : failure ? held() : List.<Given>of()) {
            if (each.run == first.run) {
                each.outcome = "defer"; // S10
                each.settledNs = now;
            }
        }
    }

    private void pass() {
        long[] steps = {1, 2, 7, 20, 90, 400, 1200};
        long ms = steps[random.nextInt(steps.length)];
        told.add("pass " + ms);
        now += ms * MS;
    }

    private void stop() {
        told.add("stop");
        session.stop(now);
        for (Given each : held()) {
            if (each.message == null) {
                each.outcome = "defer";
                each.settledNs = now;
            }
        }
    }

    private void pull() {
        if (pull == null) {
            OptionalLong at = session.pullAt();
            if (at.isPresent() && at.getAsLong() <= now) {
                beginPull();
            }
        } else if (random.nextInt(4) == 0) {
            told.add("pull fails");
            session.pullFailed(now, 0);
            returned(pullCarried, false);
            home = random.nextBoolean() ? "a:1" : "b:2";
            pull = null;
            pullFailed = true;
            OptionalLong at = session.pullAt();
            assertTrue(at.isEmpty() || at.getAsLong() > now);
        } else {
            answerPull();
        }
    }

    private void beginPull() {
        PullRequest request = session.beginPull(now);
        told.add("pull " + request.getRequestId());
        Set<Given> here = new HashSet<>(open());
        here.addAll(held());
        assertEquals(CONCURRENCY + PREFETCH - here.size(), request.getMaxBatchSize(), "S7");
        judgeId(request.getRequestId());
        pull = request;
        pullSentNs = now;
        pullCarried = carried(request.getAcks(), null);
        pullFailed = false;
    }

    /** S9: the id of the failed pull while its leases may be alive; otherwise a new one. */
    private void judgeId(String id) {
        String last = ids.keySet().stream().reduce((a, b) -> b).orElse(null);
        if (!pullFailed) {
            assertFalse(ids.containsKey(id));
        } else if (ids.containsKey(id)) {
            assertEquals(last, id);
        } else {
            assertTrue(leaseNs > 0 && now - ids.get(last) >= leaseNs, "S9");
        }
        ids.putIfAbsent(id, now);
    }

    private void answerPull() {
        long lengthMs = random.nextBoolean() ? 300 : 600;
        int count = Math.min(random.nextInt(CONCURRENCY + PREFETCH + 1), pull.getMaxBatchSize());
        List<Map<String, Object>> runs = List.of(new HashMap<>(), new HashMap<>());
        List<Message> messages = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            Given each = new Given();
            each.number = given.size() + 1;
            each.key = KEYS[random.nextInt(KEYS.length)];
            each.home = home;
            each.lengthNs = lengthMs * MS;
            each.deadlineNs = ids.get(pull.getRequestId()) + each.lengthNs;
            each.run =
                    each.key == null
                            ? new Object()
                            : runs.get(i < 2 ? 0 : 1).computeIfAbsent(each.key, k -> new Object());
            if (session.stopping()) {
                each.outcome = "defer";
                each.settledNs = now;
            }
            given.put(each.number, each);
            Message message =
                    new Message()
                            .setLeaseId(each.number)
                            .setOffset(each.number)
                            .setValue(new byte[0]);
            messages.add(each.key == null ? message : message.setOrderKey(each.key.getBytes()));
        }
        told.add("answered with " + count + " from " + home);
        Context context = new Context("g", "t", home);
        int first = Math.min(2, count);
        PullResponse response =
                new PullResponse(context, messages.subList(0, first))
                        .setLeaseMs((int) lengthMs)
                        .setHome(home);
        response.setMore(List.of(new PullResponse(context, messages.subList(first, count))));
        assertEquals(count, session.pullAnswered(response, now));
        leaseNs = count > 0 ? lengthMs * MS : leaseNs;
        returned(pullCarried, true);
        pull = null;
    }

    // ---- settling and extending ----------------------------------------------------------------

    private void beginControls() {
        for (Home each : session.homes.values()) {
            OptionalLong at = session.controlAt(each);
            if (at.isEmpty() || at.getAsLong() > now) {
                continue;
            }
            Control control = session.beginControl(each, now);
            if (control == null) {
                continue;
            }
            List<Given> leases;
            if (control.settle() != null) {
                leases = carried(control.settle().getAcks(), each.address);
                assertFalse(leases.isEmpty());
            } else {
                leases = new ArrayList<>();
                for (LeaseRef reference : control.extend().getLeases()) {
                    leases.add(given.get(reference.getLeaseId()));
                }
                assertEquals(new HashSet<>(alive(each)), new HashSet<>(leases), "S5");
            }
            told.add((control.settle() != null ? "settle" : "extend") + " at " + each.address);
            underWay.put(each, new UnderWay(control, now, leases));
        }
    }

    private List<Given> alive(Home at) {
        return held().stream().filter(each -> each.home.equals(at.address)).toList();
    }

    private void endControl() {
        if (underWay.isEmpty()) {
            return;
        }
        Home at = underWay.keySet().iterator().next();
        UnderWay asked = underWay.remove(at);
        if (random.nextInt(4) == 0) {
            fail(at, asked);
        } else {
            answer(at, asked, random.nextInt(3) == 0);
        }
    }

    private void answer(Home at, UnderWay asked, boolean refuses) {
        boolean extended = asked.control().extend() != null;
        List<Given> refused =
                asked.leases().stream()
                        .filter(e -> extended && refuses && random.nextInt(2) == 0)
                        .toList();
        Context context = new Context("g", "t", at.address);
        List<LeaseRef> notHeld =
                refused.stream().map(each -> new LeaseRef(context, each.number)).toList();
        told.add("answered at " + at.address + ", refused " + refused.size());
        List<HeldMessage> lost = session.controlAnswered(at, new AckAnswer(notHeld));
        failed.remove(at.address);
        assertEquals(
                refused.stream()
                        .filter(each -> each.message != null && each.outcome == null)
                        .map(each -> each.message)
                        .collect(Collectors.toSet()),
                new HashSet<>(lost));
        if (!extended) {
            returned(asked.leases(), true);
            return;
        }
        for (Given each : asked.leases()) {
            if (each.outcome == null && refused.contains(each)) {
                each.lost = true;
            } else if (each.outcome == null) {
                each.lengthNs = asked.control().extend().getMs() * MS;
                each.deadlineNs = asked.askedNs() + each.lengthNs;
            }
        }
    }

    private void fail(Home at, UnderWay asked) {
        told.add("fails at " + at.address);
        List<HeldMessage> lost = session.controlFailed(at, now, 0);
        int failures = failed.getOrDefault(at.address, new Failed(0, 0)).failures() + 1;
        failed.put(at.address, new Failed(failures, now + Times.backoffNs(failures, 0)));
        if (asked.control().settle() != null) {
            returned(asked.leases(), false);
        }
        List<Given> late = alive(at).stream().filter(each -> each.deadlineNs <= now).toList();
        assertEquals(
                late.stream().map(e -> e.message).filter(Objects::nonNull).toList().size(),
                lost.size());
        late.forEach(each -> each.lost = true);
        List<Given> pending = pending(at.address);
        if (pending.stream().allMatch(each -> each.deadlineNs <= now)) {
            pending.forEach(each -> each.confirmed = true); // S3: dropped
        }
    }

    /** Finally every lease has its verdict confirmed, or is lost. */
    void end() {
        for (List<HeldMessage> run :
                open().stream().map(each -> each.batch).collect(Collectors.toSet())) {
            session.settle(run, run.size(), Ending.OK, now);
            for (HeldMessage message : run) {
                given.get(message.leaseId()).outcome = "ok";
            }
        }
        stop();
        if (pull != null) {
            session.pullAnswered(new PullResponse(new Context(), List.of()), now);
            returned(pullCarried, true);
        }
        for (int round = 0; round < 3; round++) {
            Map<Home, UnderWay> last = new HashMap<>(underWay);
            underWay.clear();
            last.forEach((at, asked) -> answer(at, asked, false));
            now += 10_000 * MS;
            beginControls();
        }
        assertTrue(session.drained());
        for (Given each : given.values()) {
            assertTrue(each.confirmed || each.lost, () -> "lease " + each.number);
        }
        assertNotEquals(0, told.size());
    }
}
