"""State shared by all modules of upstream."""

from __future__ import annotations

from dataclasses import dataclass, field

from broker_core.client import BrokerClient, Membership, ReadSessions
from broker_core.client.batch_limits import BatchLimits
from proxy.core.jobs.window import Budget
from proxy.core.ownership.clock_jumps import ClockJumps
from proxy.history.record import History
from proxy.net.wakeup import Signal
from proxy.settings.proxy_settings import Settings
from proxy.upstream.audit import Audit
from proxy.upstream.pace import Count
from proxy.upstream.records.ownership_log import OwnershipLog
from proxy.upstream.records.recorded_pauses import RecordedPauses
from proxy.upstream.records.recorder import Recorder
from proxy.upstream.records.take_overs import TakeOvers


@dataclass(slots=True)
class UpstreamContext:
    """Shared state of one process. ``settled`` fires when memory was freed or a lease ended."""

    client: BrokerClient
    membership: Membership
    settings: Settings
    history: History
    memory: Budget
    log: OwnershipLog
    recorder: Recorder
    #: Reads all queues of a broker by one request; None: each queue is pulled by itself.
    sessions: ReadSessions | None = None
    #: Address of this proxy's HTTP port, as host:port; empty until it listens.
    http: str = ""
    #: Address of its port for clients, in the same way.
    thrift: str = ""
    #: Reason why this proxy takes part in no group; empty: it takes part.
    away: str = ""
    settled: Signal = field(default_factory=Signal)
    #: Queues that are read now, and groups that this proxy takes part in.
    reads: Count = field(default_factory=Count)
    groups: Count = field(default_factory=Count)
    batch_limits: BatchLimits = field(default_factory=BatchLimits)
    audit: Audit = field(init=False)
    clock_jumps: ClockJumps = field(init=False)
    take_overs: TakeOvers = field(init=False)
    pauses: RecordedPauses = field(init=False)

    def serve_http(self, address: str) -> None:
        """Set the *address* of this proxy's HTTP port, host:port."""
        self.http = address

    def serve_thrift(self, address: str) -> None:
        """Set the *address* of this proxy's port for clients, host:port."""
        self.thrift = address

    def step_aside(self, reason: str) -> None:
        """Take part in no group from now on, because of *reason*."""
        self.away = reason

    def take_part(self) -> None:
        """Take part in groups again."""
        self.away = ""

    def __post_init__(self) -> None:
        self.audit = Audit(self.client, self.history)
        lock = self.settings.lock
        # After that time no lock is trusted any more.
        self.clock_jumps = ClockJumps(int((lock.renewal_s + lock.trust_s) * 1e9))
        self.take_overs = TakeOvers(self.client)
        self.pauses = RecordedPauses(self.client, self.log)
