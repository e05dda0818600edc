package io.github.orderlane.client.internal;

import io.github.orderlane.client.ProtocolException;
import io.github.orderlane.client.RefusedException;
import io.github.orderlane.client.gen.consumer.AckAnswer;
import io.github.orderlane.client.gen.consumer.ConsumerService;
import io.github.orderlane.client.gen.consumer.PullException;
import io.github.orderlane.client.gen.consumer.PullRequest;
import io.github.orderlane.client.gen.consumer.PullResponse;
import io.github.orderlane.client.gen.producer.DelayMessage;
import io.github.orderlane.client.gen.producer.DelayResult;
import io.github.orderlane.client.gen.producer.Message;
import io.github.orderlane.client.gen.producer.ProducerService;
import io.github.orderlane.client.gen.producer.Result;
import java.util.List;
import java.util.function.Function;
import org.apache.thrift.TBase;

/**
 * One call: its generated structs and the decoder of its answer. R is the generated {@code
 * *_result} struct, T its content.
 */
final class Call<R extends TBase<R, ?>, T> {
    final String method;
    final TBase<?, ?> arguments;
    private final R result;
    private final Function<R, T> success;
    private final Function<R, PullException> error;

    private Call(
            String method,
            TBase<?, ?> arguments,
            R result,
            Function<R, T> success,
            Function<R, PullException> error) {
        this.method = method;
        this.arguments = arguments;
        this.result = result;
        this.success = success;
        this.error = error;
    }

    /** Decodes a frame. Throws RefusedException, ProxyFaultException or ProtocolException. */
    T decode(byte[] frame, int sequenceId, Object sender) {
        Wire.decodeReply(frame, result, method, sequenceId);
        PullException refusal = error.apply(result);
        if (refusal != null) {
            throw new RefusedException(
                    refusal.getCode(), sender + " refused " + method + ": " + refusal.getMessage());
        }
        T answer = success.apply(result);
        if (answer == null) {
            throw new ProtocolException(sender + " sent an empty answer to " + method, null);
        }
        if (answer instanceof Result stored && !stored.isSetCode()) { // it would read as 0: stored
            throw new ProtocolException(sender + " answered " + method + " without a code", null);
        }
        return answer;
    }

    /** Pulls messages, and settles verdicts that ride along. */
    static Call<ConsumerService.pull_result, PullResponse> pull(PullRequest request) {
        return new Call<>(
                "pull",
                new ConsumerService.pull_args(request),
                new ConsumerService.pull_result(),
                ConsumerService.pull_result::getSuccess,
                ConsumerService.pull_result::getError);
    }

    /** Settles or extends. */
    static Call<?, AckAnswer> control(Control control) {
        if (control.settle() != null) {
            return new Call<>(
                    "settle",
                    new ConsumerService.settle_args(control.settle()),
                    new ConsumerService.settle_result(),
                    ConsumerService.settle_result::getSuccess,
                    ConsumerService.settle_result::getError);
        }
        return new Call<>(
                "extend",
                new ConsumerService.extend_args(control.extend()),
                new ConsumerService.extend_result(),
                ConsumerService.extend_result::getSuccess,
                ConsumerService.extend_result::getError);
    }

    /** Stores one message. */
    static Call<?, Result> send(Message message, long timeoutMs) {
        return new Call<>(
                "sendSync",
                new ProducerService.sendSync_args(message, timeoutMs),
                new ProducerService.sendSync_result(),
                ProducerService.sendSync_result::getSuccess,
                result -> null);
    }

    /** Stores several messages, in order. */
    static Call<?, Result> sendBatch(List<Message> messages) {
        return new Call<>(
                "sendBatchSync",
                new ProducerService.sendBatchSync_args(messages),
                new ProducerService.sendBatchSync_result(),
                ProducerService.sendBatchSync_result::getSuccess,
                result -> null);
    }

    /** Stores one message for later delivery. */
    static Call<?, Result> sendDelayed(DelayMessage message, long timeoutMs) {
        return new Call<>(
                "sendDelaySync",
                new ProducerService.sendDelaySync_args(message, timeoutMs),
                new ProducerService.sendDelaySync_result(),
                result -> asResult(result.getSuccess()),
                result -> null);
    }

    private static Result asResult(DelayResult delayed) {
        if (delayed == null) {
            return null;
        }
        Result result = new Result().setMsg(delayed.getMsg());
        return delayed.isSetCode() ? result.setCode(delayed.getCode()) : result;
    }
}
