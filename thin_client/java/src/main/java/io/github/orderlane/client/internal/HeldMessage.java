package io.github.orderlane.client.internal;

import io.github.orderlane.client.Message;
import io.github.orderlane.client.gen.consumer.Context;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;

/** A message and its lease. */
public final class HeldMessage implements Message {
    private final LeaseName name;
    private final io.github.orderlane.client.gen.consumer.Message wire;
    private final byte[] body;
    private final byte[] orderKey;
    private final Map<String, String> properties;
    private final Clock clock;
    /** Context of the answer that brought it; echoed to the proxy unchanged. */
    final Context context;

    volatile long deadlineNs;
    /** Its handler, set when the message is delivered. */
    volatile Handling handling;
    private volatile boolean leaseLost;
    private boolean handled; // its handler has ended
    private List<Runnable> toTell = new ArrayList<>(0);

    HeldMessage(
            LeaseName name,
            Context context,
            io.github.orderlane.client.gen.consumer.Message wire,
            long deadlineNs,
            Clock clock) {
        this.name = name;
        this.context = context;
        this.wire = wire;
        this.body = wire.getValue();
        this.orderKey = wire.isSetOrderKey() ? wire.getOrderKey() : null;
        this.properties =
                wire.isSetProperties() ? Map.copyOf(wire.getProperties()) : Map.of();
        this.deadlineNs = deadlineNs;
        this.clock = clock;
    }

    LeaseName name() {
        return name;
    }

    @Override
    public String topic() {
        return name.topic();
    }

    @Override
    public String queue() {
        return name.queue();
    }

    @Override
    public long offset() {
        return wire.getOffset();
    }

    @Override
    public byte[] body() {
        return body;
    }

    @Override
    public Optional<String> key() {
        return Optional.ofNullable(wire.getKey());
    }

    @Override
    public Optional<byte[]> orderKey() {
        return Optional.ofNullable(orderKey);
    }

    @Override
    public Optional<String> tag() {
        return Optional.ofNullable(wire.getTag());
    }

    @Override
    public Map<String, String> properties() {
        return properties;
    }

    @Override
    public int attempt() {
        return wire.isSetAttempt() ? wire.getAttempt() : 1;
    }

    @Override
    public Optional<Instant> bornAt() {
        return wire.isSetBornAtMs()
                ? Optional.of(Instant.ofEpochMilli(wire.getBornAtMs()))
                : Optional.empty();
    }

    @Override
    public Optional<String> messageId() {
        return Optional.ofNullable(wire.getMessageId());
    }

    @Override
    public long leaseId() {
        return name.leaseId();
    }

    @Override
    public Duration timeLeft() {
        return Duration.ofNanos(deadlineNs - clock.nowNs());
    }

    @Override
    public boolean leaseLost() {
        return leaseLost;
    }

    @Override
    public void onLeaseLost(Runnable callback) {
        Objects.requireNonNull(callback, "callback");
        synchronized (this) {
            if (handled) {
                return;
            }
            if (toTell != null) {
                toTell.add(callback);
                return;
            }
        }
        callback.run();
    }

    /** Marks the lease as lost; listeners are called later, outside of any lock. */
    void markLost() {
        leaseLost = true;
    }

    /** Returns the listeners for the loss of the lease; once. */
    synchronized List<Runnable> takeListeners() {
        List<Runnable> told = toTell == null ? List.of() : toTell;
        toTell = null;
        return told;
    }

    /** Forgets the listeners: their handler has ended. */
    synchronized void endHandling() {
        handled = true;
        toTell = null;
    }

    @Override
    public String toString() {
        return topic() + "/" + queue() + " at offset " + offset() + " (attempt " + attempt() + ")";
    }
}
