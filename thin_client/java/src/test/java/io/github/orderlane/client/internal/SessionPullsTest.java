package io.github.orderlane.client.internal;

import static io.github.orderlane.client.internal.SessionStage.MS;
import static io.github.orderlane.client.internal.SessionStage.START;
import static io.github.orderlane.client.internal.SessionStage.answer;
import static io.github.orderlane.client.internal.SessionStage.home;
import static io.github.orderlane.client.internal.SessionStage.nothing;
import static io.github.orderlane.client.internal.SessionStage.pulled;
import static io.github.orderlane.client.internal.SessionStage.retry;
import static io.github.orderlane.client.internal.SessionStage.run;
import static io.github.orderlane.client.internal.SessionStage.session;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.orderlane.client.ConnectionLostException;
import io.github.orderlane.client.ProtocolException;
import io.github.orderlane.client.gen.consumer.AckBatch;
import io.github.orderlane.client.gen.consumer.PullRequest;
import io.github.orderlane.client.gen.consumer.PullResponse;
import java.util.List;
import java.util.OptionalLong;
import java.util.function.Consumer;
import org.junit.jupiter.api.Test;

/** The session's rules about handlers, pulls and runs (S6 to S10), one scenario each. */
class SessionPullsTest {
    // ---- S6, S7, S8 ----------------------------------------------------------------------------

    @Test
    void s6OneHandlerPerKeyEvenIfTheProxyErrs() {
        Session session = session(4, 4);
        HeldMessage first = pulled(session, START, run(1)).get(0);
        assertEquals(List.of(), pulled(session, START, run(2)));
        session.settle(first, Ending.OK, START);

        assertEquals(2, session.take(START).leaseId());
    }

    @Test
    void s7HeldMessagesReduceTheCapacity() {
        Session session = session(2, 4);
        assertEquals(6, session.beginPull(START).getMaxBatchSize());
        session.pullAnswered(answer(1, 2, 3, 4, 5, 6), START);
        HeldMessage first = session.take(START);
        session.take(START);
        assertNull(session.take(START));
        assertEquals(OptionalLong.empty(), session.pullAt());
        session.settle(first, Ending.OK, START);
        for (int i = 0; i < 3; i++) {
            session.settle(session.take(START), Ending.OK, START);
        }
        assertEquals(4, session.beginPull(START).getMaxBatchSize());
    }

    @Test
    void s7UnlimitedConcurrencyPullsAsMuchAsARequestCanAsk() {
        Session session = session(Integer.MAX_VALUE, Integer.MAX_VALUE);
        assertTrue(session.pullAt().isPresent());
        assertEquals(Integer.MAX_VALUE, session.beginPull(START).getMaxBatchSize());
    }

    @Test
    void s8MessagesThatArriveAfterTheStopAreReleased() {
        Session session = session();
        session.beginPull(START);
        session.stop(START);
        assertFalse(session.drained());
        session.pullAnswered(answer(1), START);
        Control control = session.beginControl(home(session), START);

        assertNull(session.take(START));
        assertEquals(List.of(1L), control.settle().getAcks().get(0).getReleased());
        assertEquals(OptionalLong.empty(), session.pullAt());
    }

    // ---- S9: pulls -----------------------------------------------------------------------------

    @Test
    void s9FailedPullIsRepeatedAndItsLeasesRunFromTheFirstSending() {
        Session session = session(1, 2);
        PullRequest first = session.beginPull(START);
        session.pullFailed(START + 10 * MS, 0);
        PullRequest again = session.beginPull(START + 500 * MS);
        session.pullAnswered(answer(1), START + 510 * MS);

        assertEquals(first.getRequestId(), again.getRequestId());
        assertEquals(START + 3000 * MS, session.take(START + 510 * MS).deadlineNs);
        assertNotEquals(
                first.getRequestId(), session.beginPull(START + 520 * MS).getRequestId());
    }

    @Test
    void s9FailedPullIsNotRepeatedOnceItsLeasesHaveExpired() {
        Session session = session();
        pulled(session, START, answer("a:1", 400, false, 1));
        String first = session.beginPull(START).getRequestId();
        session.pullFailed(START, 0);
        // A pull waits 100 ms, a lease lasts 400 ms.
        String again = session.beginPull(START + 499 * MS).getRequestId();
        session.pullFailed(START + 499 * MS, 0);
        String late = session.beginPull(START + 500 * MS).getRequestId();

        assertEquals(first, again);
        assertNotEquals(first, late);
    }

    @Test
    void s9OnlyABrokenConnectionIsRetriedAtTheSameAddressAndOnce() {
        var broke = new ConnectionLostException("closed", true, null);
        assertFalse(Feeder.triesElsewhere(broke, 1));
        assertTrue(Feeder.triesElsewhere(broke, 2));
        assertTrue(Feeder.triesElsewhere(new ConnectionLostException("late", false, null), 1));
        assertTrue(Feeder.triesElsewhere(new ProtocolException("another server", null), 1));
    }

    @Test
    void lingerFollowsTheLease() {
        Session session = session(4, 2);
        pulled(session, START, answer("a:1", 2000, false, 1));

        assertEquals(500, session.beginPull(START).getMaxLingerTime());
    }

    @Test
    void earlyEmptyAnswerPausesPulling() {
        Session session = session();
        session.beginPull(START);
        session.pullAnswered(nothing(), START + MS);
        assertTrue(session.pullAt().getAsLong() > START + MS);
        session.beginPull(START + 60 * MS);
        session.pullAnswered(nothing(), START + 1060 * MS);
        // After a full wait the next pull is due at once.
        assertTrue(session.pullAt().getAsLong() <= START + 1060 * MS);
    }

    @Test
    void malformedAnswerChangesNothing() {
        List<Consumer<PullResponse>> spoilers =
                List.of(
                        response -> response.unsetContext(),
                        response -> response.getContext().unsetQid(),
                        response -> response.unsetLeaseMs(),
                        response -> response.setLeaseMs(-5),
                        response -> response.getMessages().get(1).unsetLeaseId(),
                        response -> response.getMessages().get(1).unsetValue());
        for (Consumer<PullResponse> spoil : spoilers) {
            Session session = session(4, 2);
            HeldMessage message = pulled(session, START, answer(9)).get(0);
            session.settle(message, Ending.OK, START);
            session.beginPull(START);
            PullResponse response = answer(1, 2);
            spoil.accept(response);
            assertThrows(
                    ProtocolException.class, () -> session.pullAnswered(response, START));
            session.pullFailed(START, 0);

            Control control = session.beginControl(home(session), START + 20 * MS);
            assertNull(session.take(START));
            assertEquals(List.of(9L), control.settle().getAcks().get(0).getAcked());
        }
    }

    @Test
    void repeatedMessageIsAddedOnce() {
        Session session = session(4, 4);
        assertEquals(2, pulled(session, START, answer(1, 2)).size());
        assertEquals(0, pulled(session, START, answer(1, 2)).size());
    }

    // ---- S10: runs -----------------------------------------------------------------------------

    @Test
    void s10RunIsHandledInSequenceAndEndsAtTheFirstFailure() {
        Session session = session(4, 8);
        session.beginPull(START);
        session.pullAnswered(run(1, 2, 3, 4), START);
        HeldMessage first = session.take(START);
        assertNull(session.take(START));
        session.settle(first, Ending.OK, START);
        session.settle(session.take(START), retry(), START);

        assertNull(session.take(START));
        assertVerdicts(session, List.of(1L), 2L, List.of(3L, 4L));
    }

    @Test
    void s10MessagesOfAnotherAnswerDoNotJoinTheRun() {
        Session session = session(4, 8);
        for (PullResponse answer : List.of(run(1, 2), run(3))) {
            session.beginPull(START);
            session.pullAnswered(answer, START);
        }
        session.settle(session.take(START), Ending.DEFER, START);

        assertEquals(3, session.take(START).leaseId());
    }

    @Test
    void s10BatchHasOneHandlerAndEndsAtTheFirstFailure() {
        Session session = session(1, 8);
        session.beginPull(START);
        session.pullAnswered(run(1, 2, 3, 4), START);
        List<HeldMessage> run = session.takeRun(START);
        assertEquals(4, run.size());
        assertEquals(List.of(), session.takeRun(START));
        session.settle(run, 2, retry(), START);

        assertTrue(session.takeRun(START).isEmpty());
        assertVerdicts(session, List.of(1L, 2L), 3L, List.of(4L));
    }

    @Test
    void s10NextMessagesOfTheKeyStartAfterTheBatch() {
        Session session = session(1, 8);
        for (PullResponse answer : List.of(run(1, 2), run(3))) {
            session.beginPull(START);
            session.pullAnswered(answer, START);
        }
        List<HeldMessage> run = session.takeRun(START);
        assertEquals(2, run.size()); // later arrivals do not join it
        session.settle(run, 2, Ending.OK, START);

        assertEquals(3, session.takeRun(START).get(0).leaseId());
    }

    private static void assertVerdicts(
            Session session, List<Long> acked, long nacked, List<Long> released) {
        AckBatch batch = session.beginPull(START).getAcks().get(0);
        assertEquals(acked, batch.getAcked());
        assertEquals(1, batch.getNackedSize());
        assertEquals(nacked, batch.getNacked().get(0).getLeaseId());
        assertEquals(released, batch.getReleased());
    }
}
