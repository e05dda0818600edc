package io.github.orderlane.client.internal;

/** Identifies a live lease between proxy and client. */
record LeaseName(String topic, String queue, long leaseId) {}
