package io.github.orderlane.client.internal;

import io.github.orderlane.client.Message;
import io.github.orderlane.client.Observer;
import io.github.orderlane.client.OrderlaneException;
import io.github.orderlane.client.Outcome;
import java.util.List;
import java.util.function.Consumer;

/** Forwards to several observers; an exception in one is logged and otherwise ignored. */
final class SafeObserver implements Observer {
    private final List<Observer> observers;
    private final SafeLog log;

    SafeObserver(List<Observer> observers, SafeLog log) {
        this.observers = observers;
        this.log = log;
    }

    private void tell(Consumer<Observer> what) {
        for (Observer observer : observers) {
            try {
                what.accept(observer);
            } catch (Throwable error) { // even an AssertionError must not end the consumer
                log.error(error, "an observer failed");
            }
        }
    }

    @Override
    public void onHandleStart(Message message) {
        tell(observer -> observer.onHandleStart(message));
    }

    @Override
    public void onHandleEnd(Message message, Outcome outcome) {
        tell(observer -> observer.onHandleEnd(message, outcome));
    }

    @Override
    public void onPulled(int messages) {
        tell(observer -> observer.onPulled(messages));
    }

    @Override
    public void onSettled(int verdicts, int notHeld) {
        tell(observer -> observer.onSettled(verdicts, notHeld));
    }

    @Override
    public void onLeaseLost(Message message) {
        tell(observer -> observer.onLeaseLost(message));
    }

    @Override
    public void onError(OrderlaneException error) {
        tell(observer -> observer.onError(error));
    }
}
