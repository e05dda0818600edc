package orderlane.client.internal;

import java.util.List;
import orderlane.client.BatchHandler;
import orderlane.client.KeyBatch;
import orderlane.client.Message;
import orderlane.client.MessageHandler;
import orderlane.client.Outcome;

/** A handler of the application, for one message or for a batch. */
public interface Work {

    /** How it ended: so many are handled, and the ending holds for the next, if there is one. */
    record Result(int done, Ending ending) {}

    /** Whether it takes a key's whole run. */
    boolean takesRuns();

    /** Calls the handler; whatever it throws becomes an ending. */
    Result handle(List<HeldMessage> run);

    /** One message at a time. */
    static Work of(MessageHandler handler) {
        return new Work() {
            @Override
            public boolean takesRuns() {
                return false;
            }

            @Override
            public Result handle(List<HeldMessage> run) {
                Ending ending = ending(() -> handler.handle(run.get(0)));
                return new Result(ending.isOk() ? 1 : 0, ending);
            }
        };
    }

    /** A key's messages at a time. */
    static Work of(BatchHandler handler) {
        return new Work() {
            @Override
            public boolean takesRuns() {
                return true;
            }

            @Override
            public Result handle(List<HeldMessage> run) {
                Batch batch = new Batch(run);
                Ending ending = ending(() -> handler.handle(batch));
                return new Result(ending.isOk() ? run.size() : batch.done(), ending);
            }
        };
    }

    /** What the application's code comes to. */
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
        } catch (Throwable error) { // also an AssertionError means: not handled
            return Ending.failed(error);
        }
    }

    /** The batch that a handler sees. */
    final class Batch implements KeyBatch {
        private final List<HeldMessage> run;
        private int done;

        private Batch(List<HeldMessage> run) {
            this.run = run;
        }

        @Override
        public List<Message> messages() {
            return List.copyOf(run);
        }

        @Override
        public synchronized void ok(Message message) {
            int index = run.indexOf(message);
            if (index < 0) {
                throw new IllegalArgumentException(message + " is not of this batch");
            }
            done = Math.max(done, index + 1);
        }

        @Override
        public synchronized int done() {
            return done;
        }
    }
}
