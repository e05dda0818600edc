"""Names of the properties by which RocketMQ delays messages and sends them again."""

from __future__ import annotations

DELAY_LEVEL = "DELAY"
REAL_TOPIC = "REAL_TOPIC"
REAL_QUEUE = "REAL_QID"
#: Property of a message in a delay topic: its due time, milliseconds since 1970.
DUE = "TIMER_OUT_MS"
DELAY_S, DELAY_MS, DELIVER_MS = "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"
#: Properties of a delayed message that are removed when it is delivered.
DELAY_PROPERTIES = frozenset(
    name.encode() for name in (DELAY_LEVEL, DELAY_S, DELAY_MS, DELIVER_MS, DUE)
)
RETRY_TOPIC = "RETRY_TOPIC"
