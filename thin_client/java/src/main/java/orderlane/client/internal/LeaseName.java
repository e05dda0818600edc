package orderlane.client.internal;

/** How proxy and client call a lease: unique among those that are alive. */
record LeaseName(String topic, String queue, long leaseId) {}
