package io.github.orderlane.client.internal;

import io.github.orderlane.client.gen.consumer.AckRequest;
import io.github.orderlane.client.gen.consumer.ExtendRequest;

/** A settle or an extend; the other is null. */
record Control(AckRequest settle, ExtendRequest extend) {
    static Control settle(AckRequest request) {
        return new Control(request, null);
    }

    static Control extend(ExtendRequest request) {
        return new Control(null, request);
    }
}
