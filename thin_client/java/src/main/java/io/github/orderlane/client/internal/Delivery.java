package io.github.orderlane.client.internal;

import io.github.orderlane.client.OrderlaneException;
import io.github.orderlane.client.OutgoingMessage;
import io.github.orderlane.client.SendFailedException;
import io.github.orderlane.client.SendFailedException.Failure;
import io.github.orderlane.client.gen.producer.DelayMessage;
import io.github.orderlane.client.gen.producer.Message;
import io.github.orderlane.client.gen.producer.MessageResult;
import io.github.orderlane.client.gen.producer.Result;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.OptionalInt;
import java.util.Set;
import java.util.stream.IntStream;

/**
 * The messages of one request, tried until the deadline. Messages known to be stored are not sent
 * again. No I/O.
 */
final class Delivery {
    /** The proxy's default request limit, and the part of it that a batch fills. */
    static final int MAX_REQUEST_BYTES = 5_000_000;

    private static final int BATCH_BYTES = 2_000_000;
    /** Time for the proxy's own answer. */
    private static final long ANSWER_NS = 500 * Times.MS;

    /**
     * Codes after which the same message is resent under the same id: unknown error, timeout, too
     * fast, shutting down, behind one that failed.
     */
    private static final Set<Integer> AGAIN = Set.of(10, 12, 15, 20, 70);

    /** Codes after which the message may or may not have been stored. */
    private static final Set<Integer> UNKNOWN = Set.of(10, 12);

    /**
     * Codes after which no message of a batch was stored, if they come without results of the
     * messages: illegal, too fast, no token.
     */
    private static final Set<Integer> REFUSED_WHOLE = Set.of(11, 15, 71);

    final long deadlineNs;
    private final List<Message> messages = new ArrayList<>();
    private DelayMessage delayed; // the only message, if it is delayed
    private final Set<Integer> stored = new HashSet<>(); // indexes of messages
    private final Set<Integer> doubtful = new HashSet<>(); // may be stored
    private int failures;

    private Delivery(long deadlineNs) {
        this.deadlineNs = deadlineNs;
    }

    /** One try: the call, and its time limit. */
    record Attempt(Call<?, Result> call, long limitNs) {}

    /**
     * Splits messages into requests, in order. Throws IllegalArgumentException for one that is too
     * large.
     */
    static List<Delivery> of(
            List<OutgoingMessage> outgoing,
            List<Map<String, String>> traced,
            String token,
            long deadlineNs) {
        List<Delivery> deliveries = new ArrayList<>();
        long room = 0;
        for (int i = 0; i < outgoing.size(); i++) {
            OutgoingMessage each = outgoing.get(i);
            Message message = WireMessages.of(each, traced.get(i), token);
            long size = WireMessages.size(message);
            if (size > MAX_REQUEST_BYTES) {
                throw new IllegalArgumentException(
                        "a message to " + each.topic() + " has " + size + " bytes: the limit is "
                                + MAX_REQUEST_BYTES);
            }
            if (deliveries.isEmpty() || size > room || each.delay() != null) {
                deliveries.add(new Delivery(deadlineNs));
                room = BATCH_BYTES;
            }
            Delivery last = deliveries.get(deliveries.size() - 1);
            last.messages.add(message);
            room -= size;
            if (each.delay() != null) {
                last.delayed = WireMessages.delayed(message, each);
                room = 0; // alone
            }
        }
        return deliveries;
    }

    /** The ids of all its messages, in order. */
    List<String> ids() {
        return messages.stream().map(WireMessages::idOf).toList();
    }

    /** The ids of messages not known to be stored. */
    List<String> openIds() {
        return open().stream().map(index -> WireMessages.idOf(messages.get(index))).toList();
    }

    /** The order keys of those messages. */
    Set<SendOrder.Key> keys() {
        Set<SendOrder.Key> keys = new HashSet<>();
        for (int index : open()) {
            SendOrder.Key key = WireMessages.keyOf(messages.get(index));
            if (key != null) {
                keys.add(key);
            }
        }
        return keys;
    }

    /** The next try, at most {@code longestNs} long. */
    Attempt attempt(long nowNs, long longestNs) {
        long tryNs = Math.max(Math.min(deadlineNs - nowNs, longestNs), Times.MS);
        List<Message> sent = open().stream().map(messages::get).toList();
        Call<?, Result> call =
                delayed != null
                        ? Call.sendDelayed(delayed, tryNs / Times.MS)
                        : sent.size() == 1
                                ? Call.send(sent.get(0), tryNs / Times.MS)
                                : Call.sendBatch(sent);
        return new Attempt(call, tryNs + ANSWER_NS);
    }

    /** -1: all stored; else nanoseconds until the next try. Throws SendFailedException. */
    long pauseAfter(Result result, long nowNs, double jitter) {
        List<Integer> sent = open();
        int code = result.isSetCode() ? result.getCode() : -1;
        if (code == 0) {
            stored.addAll(sent);
            return -1;
        }
        String text = result.getMsg() == null ? "no reason given" : result.getMsg();
        List<MessageResult> results = result.getMessages();
        if (results == null || results.size() != sent.size()) {
            // A batch may be stored in part, unless it was refused whole.
            int each = sent.size() == 1 || REFUSED_WHOLE.contains(code) ? code : 10;
            results = sent.stream().map(index -> new MessageResult(each)).toList();
        }
        Map<Integer, Failure> reasons = new LinkedHashMap<>();
        Integer last = null; // a code after which no retry helps
        for (int i = 0; i < sent.size(); i++) {
            int each = results.get(i).getCode();
            if (each == 0) {
                stored.add(sent.get(i));
                continue;
            }
            if (results.get(i).getMsg() != null) { // absent: same as the previous one
                text = results.get(i).getMsg();
            }
            if (UNKNOWN.contains(each)) {
                doubtful.add(sent.get(i));
            }
            last = last == null && !AGAIN.contains(each) ? Integer.valueOf(each) : last;
            reasons.put(sent.get(i), failure(sent.get(i), text, OptionalInt.of(each)));
        }
        if (reasons.isEmpty()) {
            return -1;
        }
        boolean again = last == null && AGAIN.contains(code);
        return pause(reasons, last == null ? Integer.valueOf(code) : last, again, nowNs, jitter);
    }

    /**
     * Nanoseconds until the next try; {@code sent}: it may have arrived. Throws
     * SendFailedException.
     */
    long pauseAfterError(OrderlaneException error, boolean sent, long nowNs, double jitter) {
        if (sent) {
            doubtful.addAll(open());
        }
        return pause(
                reasons(error.getMessage()), null, error.retriable(), nowNs, jitter);
    }

    /** The exception instead of another try. */
    SendFailedException notSent(String why) {
        return failed(reasons(why), null);
    }

    /** The number of failed tries. */
    int failures() {
        return failures;
    }

    String topic() {
        return messages.get(0).getTopic();
    }

    private List<Integer> open() {
        return IntStream.range(0, messages.size())
                .filter(index -> !stored.contains(index))
                .boxed()
                .toList();
    }

    private Map<Integer, Failure> reasons(String why) {
        Map<Integer, Failure> reasons = new LinkedHashMap<>();
        open().forEach(index -> reasons.put(index, failure(index, why, OptionalInt.empty())));
        return reasons;
    }

    private Failure failure(int index, String why, OptionalInt code) {
        return new Failure(why, code, doubtful.contains(index));
    }

    private long pause(
            Map<Integer, Failure> reasons, Integer code, boolean again, long nowNs, double jitter) {
        failures++;
        long pauseNs = Times.backoffNs(failures, jitter);
        if (again && nowNs + pauseNs < deadlineNs) {
            return pauseNs;
        }
        throw failed(reasons, code);
    }

    private SendFailedException failed(Map<Integer, Failure> reasons, Integer code) {
        Map<String, Failure> named = new LinkedHashMap<>();
        reasons.forEach(
                (index, failure) -> named.put(WireMessages.idOf(messages.get(index)), failure));
        Failure first = named.values().iterator().next();
        boolean unknown = named.values().stream().anyMatch(Failure::outcomeUnknown);
        String others = named.size() > 1 ? " and " + (named.size() - 1) + " others" : "";
        return new SendFailedException(
                String.format(
                        "sending to %s failed: %s (message %s%s: %s)",
                        topic(),
                        first.reason(),
                        named.keySet().iterator().next(),
                        others,
                        unknown ? "may have been stored" : "not stored"),
                code,
                ids(),
                named);
    }
}
