package io.github.orderlane.client.internal;

import io.github.orderlane.client.BatchHandler;
import io.github.orderlane.client.KeyBatch;
import io.github.orderlane.client.Message;
import io.github.orderlane.client.MessageHandler;
import io.github.orderlane.client.Observer;
import io.github.orderlane.client.Outcome;
import java.util.List;

/** A handler of the application, for one message or for a batch. */
public interface Work {

    /** The end of a handler: the number of marked messages, and the ending of the next one. */
    record Result(int marked, Ending ending) {}

    /** Whether it takes a key's whole run. */
    boolean takesRuns();

    /**
     * Calls the handler; an exception becomes an ending. {@code observer} already knows of the
     * first message's start; later starts, and the ends of marked messages, are reported here.
     */
    Result handle(List<HeldMessage> run, Observer observer);

    /** Handles one message at a time. */
    static Work of(MessageHandler handler) {
        return new Work() {
            @Override
            public boolean takesRuns() {
                return false;
            }

            @Override
            public Result handle(List<HeldMessage> run, Observer observer) {
                return new Result(0, ending(() -> handler.handle(run.get(0))));
            }
        };
    }

    /** Handles a key's messages together. */
    static Work of(BatchHandler handler) {
        return new Work() {
            @Override
            public boolean takesRuns() {
                return true;
            }

            @Override
            public Result handle(List<HeldMessage> run, Observer observer) {
                Batch batch = new Batch(run, observer);
                Ending ending = ending(() -> handler.handle(batch));
                return new Result(batch.end(), ending);
            }
        };
    }

    /** The application's code. */
    interface Code {
        Outcome run() throws Exception;
    }

    private static Ending ending(Code code) {
        try {
            Outcome outcome = code.run();
            return outcome != null
                    ? Ending.of(outcome)
                    : Ending.failed(
                            new NullPointerException("the handler returned null, not an Outcome"));
        } catch (Throwable error) { // an AssertionError means not handled, too
            return Ending.failed(error);
        }
    }

    /** The batch that a handler sees. */
    final class Batch implements KeyBatch {
        private final List<HeldMessage> run;
        private final Observer observer;
        private int done;
        private boolean ended;

        private Batch(List<HeldMessage> run, Observer observer) {
            this.run = run;
            this.observer = observer;
        }

        @Override
        public List<Message> messages() {
            return List.copyOf(run);
        }

        @Override
        public synchronized void ok(Message message) {
            int index = run.indexOf(message);
            if (index < 0) {
                throw new IllegalArgumentException(message + " is not in this batch");
            }
            if (ended) {
                throw new IllegalStateException("the handler of " + message + " has ended");
            }
            while (done <= index) {
                observer.onHandleEnd(run.get(done), Outcome.ok());
                done++;
                if (done < run.size()) {
                    observer.onHandleStart(run.get(done));
                }
            }
        }

        /** Ends the marking; returns the number of marked messages. */
        private synchronized int end() {
            ended = true;
            return done;
        }

        @Override
        public synchronized int done() {
            return done;
        }
    }
}
