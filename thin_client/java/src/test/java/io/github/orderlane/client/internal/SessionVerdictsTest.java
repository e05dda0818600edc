package io.github.orderlane.client.internal;

import static io.github.orderlane.client.internal.SessionStage.ALL_HELD;
import static io.github.orderlane.client.internal.SessionStage.MS;
import static io.github.orderlane.client.internal.SessionStage.START;
import static io.github.orderlane.client.internal.SessionStage.answer;
import static io.github.orderlane.client.internal.SessionStage.home;
import static io.github.orderlane.client.internal.SessionStage.pulled;
import static io.github.orderlane.client.internal.SessionStage.run;
import static io.github.orderlane.client.internal.SessionStage.session;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.orderlane.client.Outcome;
import io.github.orderlane.client.gen.consumer.AckAnswer;
import io.github.orderlane.client.gen.consumer.AckBatch;
import io.github.orderlane.client.gen.consumer.ExtendRequest;
import java.time.Duration;
import java.util.List;
import java.util.OptionalLong;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;

/** The session's rules about verdicts and leases (S1 to S5), one scenario each. */
class SessionVerdictsTest {
    // ---- S1, S2, S3: verdicts ------------------------------------------------------------------

    @Test
    void s1VerdictsRideOnlyToTheirOwnProxy() {
        Session session = session(4, 0);
        List<HeldMessage> old = pulled(session, START, answer(1, 2));
        session.beginPull(START);
        session.pullFailed(START, 0);
        long later = START + 100 * MS;
        List<HeldMessage> fresh = pulled(session, later, answer("b:2", 3000, false, 3));
        session.settle(old.get(0), Ending.OK, later);
        session.settle(fresh.get(0), Ending.OK, later);

        List<AckBatch> riding = session.beginPull(later).getAcks();
        Control control = session.beginControl(home(session), later + MS);

        assertEquals(List.of(3L), riding.get(0).getAcked());
        assertEquals(List.of(1L), control.settle().getAcks().get(0).getAcked());
        assertFalse(old.get(1).leaseLost());
    }

    @Test
    void s2VerdictWaitsForTheLingerWithoutAPull() {
        Session session = session(1, 3);
        HeldMessage first = pulled(session, START, answer(1, 2, 3, 4)).get(0);
        session.settle(first, Ending.OK, START);

        assertEquals(OptionalLong.empty(), session.pullAt());
        assertEquals(OptionalLong.of(START + 20 * MS), session.controlAt(home(session)));
        assertNull(session.beginControl(home(session), START + 19 * MS));
        assertNotNull(session.beginControl(home(session), START + 20 * MS));
    }

    @Test
    void s2VerdictIsSentAtOnceIfNoMessageWaits() {
        Session session = session(2, 0);
        List<HeldMessage> both = pulled(session, START, answer(1, 2));
        session.settle(both.get(0), Ending.OK, START + MS);
        session.beginPull(START + MS);
        assertNull(session.beginControl(home(session), START + 2 * MS)); // it rides

        session.settle(both.get(1), Ending.OK, START + 2 * MS);
        assertEquals(OptionalLong.of(START + 2 * MS), session.controlAt(home(session)));
    }

    @Test
    void s2VerdictInsideARunReleasesNothingAndDoesNotHurry() {
        Session session = session(1, 8);
        session.beginPull(START);
        session.pullAnswered(run(1, 2), START);
        session.beginPull(START); // waits for the key's next messages
        session.settle(session.take(START), Ending.OK, START + MS);
        assertEquals(OptionalLong.of(START + 21 * MS), session.controlAt(home(session)));
        session.settle(session.take(START), Ending.OK, START + 2 * MS);
        assertEquals(OptionalLong.of(START + MS), session.controlAt(home(session)));
    }

    @Test
    void s3FailedSettleIsResent() {
        Session session = session();
        HeldMessage message = pulled(session, START, answer(1)).get(0);
        session.settle(message, Ending.of(Outcome.reject("bad")), START);
        session.beginControl(home(session), START + 20 * MS);
        session.controlFailed(home(session), START + 30 * MS, 0);
        Control again = session.beginControl(home(session), START + 100 * MS);

        assertEquals("bad", again.settle().getAcks().get(0).getNacked().get(0).getReason());
    }

    @Test
    void s3UselessVerdictIsDropped() {
        Session session = session();
        HeldMessage message = pulled(session, START, answer(1)).get(0);
        session.settle(message, Ending.OK, START);
        Home home = home(session);
        for (long now : new long[] {START + 1000 * MS, START + 3000 * MS}) {
            session.beginControl(home, now);
            session.controlFailed(home, now, 0);
        }
        assertEquals(OptionalLong.empty(), session.controlAt(home));
        assertTrue(session.drained());
    }

    @Test
    void verdictsCarryTheOutcome() {
        Session session = session(4, 0);
        List<HeldMessage> all = pulled(session, START, answer(1, 2, 3, 4));
        session.settle(all.get(0), Ending.of(Outcome.retryAfter(Duration.ofMillis(1500))), START);
        session.settle(all.get(1), Ending.failed(new IllegalStateException("no")), START);
        session.settle(all.get(2), Ending.of(Outcome.reject("😀".repeat(300))), START);
        session.settle(all.get(3), Ending.DEFER, START);
        AckBatch batch = session.beginPull(START).getAcks().get(0);

        assertEquals(1500, batch.getNacked().get(0).getRetryAfterMs());
        assertFalse(batch.getNacked().get(0).isSetReason());
        assertEquals("IllegalStateException: no", batch.getNacked().get(1).getReason());
        assertFalse(batch.getNacked().get(1).isSetRetryAfterMs());
        assertTrue(batch.getNacked().get(2).isReject());
        assertEquals("😀".repeat(200), batch.getNacked().get(2).getReason());
        assertEquals(List.of(4L), batch.getReleased());
    }

    // ---- S4, S5: leases ------------------------------------------------------------------------

    @Test
    void s4MessageWithAnExpiredLeaseNeedsAnExtend() {
        Session session = session(1, 1);
        HeldMessage first = pulled(session, START, answer(1, 2)).get(0);
        long late = START + 3001 * MS;
        session.settle(first, Ending.OK, late);
        assertNull(session.take(late));

        Control control = session.beginControl(home(session), late);
        assertNotNull(control.extend());
        session.controlAnswered(home(session), ALL_HELD);
        assertEquals(late + 3000 * MS, session.take(late).deadlineNs);
    }

    @Test
    void s5LeasesOfSeveralLengthsAreExtendedByTheShortest() {
        Session session = session(4, 0);
        pulled(session, START, answer("a:1", 9000, false, 1));
        HeldMessage brief = pulled(session, START, answer(2)).get(0);

        assertEquals(OptionalLong.of(START + 1000 * MS), session.controlAt(home(session)));
        ExtendRequest extend = session.beginControl(home(session), START + 1000 * MS).extend();
        session.controlAnswered(home(session), ALL_HELD);

        assertEquals(3000, extend.getMs());
        assertEquals(2, extend.getLeasesSize());
        assertEquals(START + 4000 * MS, brief.deadlineNs);
        assertEquals(OptionalLong.of(START + 2000 * MS), session.controlAt(home(session)));
    }

    @Test
    void s5RefusedExtendLosesTheLease() {
        Session session = session(1, 1);
        HeldMessage open = pulled(session, START, answer(1, 2)).get(0);
        Home home = home(session);
        ExtendRequest extend = session.beginControl(home, START + 1000 * MS).extend();
        List<HeldMessage> lost =
                session.controlAnswered(home, new AckAnswer(extend.getLeases()));

        assertEquals(List.of(open), lost);
        assertTrue(open.leaseLost());
        session.settle(open, Ending.OK, START + 1001 * MS);
        assertNull(session.take(START + 1001 * MS)); // the waiting message was dropped
    }

    @Test
    void s5LeaseThatExpiresAtASilentProxyIsLost() {
        Session session = session(1, 0);
        HeldMessage open = pulled(session, START, answer(1)).get(0);
        Home home = home(session);
        session.beginControl(home, START + 1000 * MS);
        assertEquals(List.of(), session.controlFailed(home, START + 2000 * MS, 0));
        session.beginControl(home, START + 2500 * MS);

        assertEquals(List.of(open), session.controlFailed(home, START + 3000 * MS, 0));
        assertTrue(open.leaseLost());
    }

    // ---- other ---------------------------------------------------------------------------------

    @Test
    void everyRequestCarriesTheToken() {
        Session session = session(2, 0);
        List<HeldMessage> both = pulled(session, START, answer(1, 2));
        session.settle(both.get(0), Ending.OK, START);
        Home home = home(session);

        assertEquals("secret", session.beginControl(home, START + 20 * MS).settle().getToken());
        session.controlAnswered(home, ALL_HELD);
        assertEquals("secret", session.beginControl(home, START + 1000 * MS).extend().getToken());
        assertEquals("secret", session.beginPull(START).getToken());
    }

    @Test
    void settlingTwiceIsAnErrorThatNamesTheMessage() {
        Session session = session();
        HeldMessage message = pulled(session, START, answer(1)).get(0);
        session.settle(message, Ending.DEFER, START);

        var error =
                assertThrows(
                        IllegalArgumentException.class,
                        () -> session.settle(message, Ending.OK, START));
        assertEquals("t/q#1 at offset 1 (attempt 1): not with a handler", error.getMessage());
    }

    @Test
    void toStringIsAStatusLine() {
        Session session = session();
        pulled(session, START, answer(1, 2, 3));

        assertEquals(
                "<Session g handlers=2 ready=1 held=3 pulling=false homes=1>", session.toString());
    }

    @Test
    void backoffGrowsToALimitAndSpreads() {
        List<Long> longest =
                IntStream.of(1, 2, 3, 8, 100).mapToObj(n -> Times.backoffNs(n, 1) / MS).toList();
        assertEquals(List.of(50L, 100L, 200L, 5000L, 5000L), longest);
        assertEquals(Times.backoffNs(1, 1) / 2, Times.backoffNs(1, 0));
    }

    @Test
    void longOutageIsLoggedEverLessOften() {
        assertEquals(
                List.of(1, 2, 4, 8, 16, 32, 64),
                IntStream.range(1, 100).filter(Times::isNews).boxed().toList());
    }
}
