"""Cases as data: the strict parser of ``cases/*.yaml``. ``cases/README.md`` explains the words."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, ClassVar, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

FOLDER = Path(__file__).parent / "cases"

REQUESTS = ("pull", "settle", "extend", "sendSync", "sendBatchSync", "sendDelaySync")
LINES = (
    "start",
    "lost",
    "end",
    "error",
    "stopped",
    "sent",
    "hash",
    "pulled",
    "settled",
    "extended",
)
#: A pull or settle with these verdicts, among others.
VERDICT = "verdict"
#: A pull or settle with this nack.
NACK = "nack"
EVENTS = (*REQUESTS, *LINES, VERDICT, NACK)
#: What ``fault`` can do to a request.
FAULTS = Literal[
    "lose_request", "lose_answer", "late", "silent", "refuse", "fault", "unknown_method",
    "empty", "garbage", "bad_length", "huge_length", "truncated", "wrong_method", "wrong_number",
    "not_held", "nothing", "result",
]  # fmt: skip


class CaseError(Exception):
    """A case is invalid; the text is one sentence."""


class Words(BaseModel):
    """Base: unknown words are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Put(Words):
    """A message that the proxy offers. Leases and offsets count automatically."""

    key: str | None = None
    order_key: str | None = None
    order_key_hex: str | None = None
    unordered: bool = False
    lease: int | None = None
    topic: str = "orders"
    queue: str = "broker-a_0#1"
    offset: int | None = None
    attempt: int = 1
    tag: str | None = None
    properties: dict[str, str] | None = None
    born_at_ms: int | None = 1_700_000_000_000
    message_id: str | None = None
    body: Any = None
    body_bytes: int = 0
    times: int = 1
    without: list[Literal["leaseId", "value", "offset", "attempt", "bornAtMs", "messageId"]] = []


Matcher = dict[str, Any]


class PutStep(Words):
    put: list[Put]
    at: str = "a"
    lease_ms: int | None = None
    home: str | None = None


class FaultStep(Words):
    fault: FAULTS
    of: Literal[REQUESTS]  # type: ignore[valid-type]
    at: str = "a"
    times: int = 1
    ms: int = 0
    code: int | None = 500
    text: str = "not now"
    leases: list[int] = []
    results: list[int | None] = []


class ExpectStep(Words):
    expect: Matcher
    at: str | None = None
    after_ms: int | None = None
    before_ms: int | None = None


class QuietStep(Words):
    quiet_ms: int
    no: list[Matcher] = []


class SignalStep(Words):
    signal: Literal["term", "kill", "stop", "cont"]


class ProxyStep(Words):
    proxy: Literal["down", "up", "cut"]
    at: str = "a"


class TellStep(Words):
    tell: dict[str, Any]


class EndStep(Words):
    end: Literal["itself", "input"]


class ClientStep(Words):
    client: Literal["again"]


class SendStep(Words):
    """Send messages, spread over keys, to a real gateway."""

    send: int
    keys: int = 1
    body: dict[str, Any] = {}


class FinishedStep(Words):
    """Wait until a real gateway has finished all sent messages."""

    finished: Literal[True]


Step = (
    PutStep
    | FaultStep
    | ExpectStep
    | QuietStep
    | SignalStep
    | ProxyStep
    | TellStep
    | EndStep
    | ClientStep
    | SendStep
    | FinishedStep
)
_STEPS: dict[str, type[Words]] = {
    "put": PutStep,
    "fault": FaultStep,
    "expect": ExpectStep,
    "quiet_ms": QuietStep,
    "signal": SignalStep,
    "proxy": ProxyStep,
    "tell": TellStep,
    "end": EndStep,
    "client": ClientStep,
    "send": SendStep,
    "finished": FinishedStep,
}


class Client(Words):
    """Options of the client; ``servers`` are names of proxies."""

    mode: Literal["consume", "produce", "oneshot"] = "consume"
    servers: list[str] = ["a"]
    group: str = "g"
    topics: list[str] | None = None
    concurrency: int | None = None
    prefetch: int | None = None
    max_run: int | None = None
    client_id: str | None = "client-1"
    ack_linger_ms: int | None = None
    #: Longer than the clients' defaults: a busy machine must not look like a lost proxy.
    request_timeout_ms: int = 10_000
    drain_timeout_ms: int | None = None
    token: str | None = None
    tls: dict[Literal["ca", "cert", "key", "server_name"], str] | None = None
    form: Literal["handler", "batches", "iterator"] | None = None
    work_ms: list[int] | None = None
    quiet: bool | None = None


class Proxies(Words):
    """Options of all scripted proxies of a case."""

    names: list[str] = ["a"]
    lease_ms: int = 6_000
    tls: Literal["server", "mutual"] | None = None
    home: str | None = None


class GatewaySpec(Words):
    """A real gateway instead of scripted proxies."""

    process: bool = False
    tls: Literal["server", "mutual"] | None = None
    tokens: list[str] = []
    visibility_s: float = 2.0
    topic: dict[str, Any] = {}
    #: Expected contents of the histories: minimum of handler starts, maximum of repetitions.
    handled: Any = None
    duplicates: int | None = None
    #: True: the case ends before all messages are finished.
    unfinished: bool = False


class Exit(Words):
    """The expected end of the client."""

    code: int = 0
    error: Matcher | None = None
    handled: Any = None


class Count(Words):
    of: Matcher
    times: int | None = None
    at_most: int | None = None
    at_least: int | None = None


class Case(Words):
    """One behaviour."""

    case: str = Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")
    proves: str
    client: Client = Client()
    proxies: Proxies = Proxies()
    gateway: GatewaySpec | None = None
    steps: list[dict[str, Any]]
    never: list[Matcher] = []
    counts: list[Count] = []
    order: list[Matcher] = []
    exit: Exit | None = Exit()
    waives: list[str] = []

    @property
    def dialogue(self) -> list[Step]:
        """Return the steps, parsed by their verbs."""
        return [read_step(step) for step in self.steps]


def read_step(step: dict[str, Any]) -> Step:
    """Parse one step. Raises CaseError."""
    verbs = [verb for verb in _STEPS if verb in step]
    if len(verbs) != 1:
        raise CaseError(f"a step has {verbs or sorted(step)}: expected one of {', '.join(_STEPS)}")
    try:
        read: Any = _STEPS[verbs[0]].model_validate(step)
    except ValidationError as error:
        raise CaseError(_sentence(error)) from None
    if isinstance(read, ExpectStep):
        check_matcher(read.expect)
    for each in read.no if isinstance(read, QuietStep) else ():
        check_matcher(each)
    return read  # type: ignore[no-any-return]


def check_matcher(matcher: Matcher) -> None:
    """Raise CaseError unless it names one kind of event, with members of that kind."""
    if len(matcher) != 1 or next(iter(matcher)) not in EVENTS:
        raise CaseError(f"{sorted(matcher)} is not an event: expected one of {', '.join(EVENTS)}")
    ((kind, members),) = matcher.items()
    if not isinstance(members, dict | None):
        raise CaseError(f"{kind} has {members!r}: expected members, as in {{{kind}: {{lease: 1}}}}")
    known = _MEMBERS.get(kind)
    for name in members or () if known is not None else ():
        if name not in known:
            raise CaseError(f"{kind} has no {name!r}: expected some of {', '.join(sorted(known))}")


_MESSAGE = {
    *("topic", "queue", "offset", "lease", "key", "order_key", "tag", "properties", "attempt"),
    *("born_at_ms", "message_id", "left_ms", "body"),
}
_REQUEST = {"groupId", "clientId", "token", "request_connection", "requests_before"}
_MEMBERS: dict[str, set[str] | None] = {
    "pull": _REQUEST | {
        *("topic", "topics", "maxBatchSize", "maxLingerTime", "version", "maxRun", "manyQueues"),
        *("acks", "requestId", "request_id", "verdicts", "includes", "nacks"),
    },
    "settle": _REQUEST | {"acks", "verdicts", "includes", "nacks"},
    "extend": _REQUEST | {"leases", "leases_include", "ms"},
    "sendSync": {
        *("topic", "key", "value", "hashId", "tags", "partitionId", "body", "version"),
        *("properties", "token", "connection", "number"),
    },
    "sendBatchSync": {"messages"},
    "sendDelaySync": {"topic", "body", "tags", "action", "timestamp", "dmsgtype", "properties",
                      "token", "uuid", "version"},
    "verdict": None,
    "nack": {"leaseId", "retryAfterMs", "reject", "reason"},
    "start": _MESSAGE,
    "lost": {"lease", "queue"},
    "end": {"lease", "queue", "offset", "outcome"},
    "error": {"kind", "code", "retriable", "text"},
    "stopped": {"handled", "error"},
    "sent": {"results"},
    "hash": {"hash"},
    "pulled": {"messages"},
    "settled": {"held"},
    "extended": {"held"},
}  # fmt: skip


def read_cases(folder: Path = FOLDER) -> list[Case]:
    """Return all cases by file and position. Raises CaseError."""
    cases: list[Case] = []
    for path in sorted(folder.glob("*.yaml")):
        cases += read_file(path)
    names = [case.case for case in cases]
    for name in names:
        if names.count(name) > 1:
            raise CaseError(f"two cases are called {name}")
    return cases


class _Loader(yaml.SafeLoader):
    """A loader in which ``no`` and ``on`` are words; only true and false are booleans."""

    yaml_implicit_resolvers: ClassVar = {
        first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":bool")]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("^(?:true|false)$"), list("tf"))


def read_file(path: Path) -> list[Case]:
    """Return the cases of one file. Raises CaseError that names the file."""
    try:
        documents = yaml.load(path.read_text(), Loader=_Loader)
    except yaml.YAMLError as error:
        raise CaseError(f"{path.name} is not valid YAML: {error}") from None
    if not isinstance(documents, list):
        raise CaseError(f"{path.name} is not a list of cases")
    cases = []
    for number, document in enumerate(documents, start=1):
        name = document.get("case", number) if isinstance(document, dict) else number
        try:
            case = Case.model_validate(document)
        except ValidationError as error:
            raise CaseError(f"{path.name}, case {name}: {_sentence(error)}") from None
        for place, step in enumerate(case.steps, start=1):
            try:
                read_step(step)
            except CaseError as error:
                raise CaseError(f"{path.name}, case {name}, step {place}: {error}") from None
        try:
            for matcher in (*case.never, *case.order, *(count.of for count in case.counts)):
                check_matcher(matcher)
        except CaseError as error:
            raise CaseError(f"{path.name}, case {name}: {error}") from None
        cases.append(case)
    return cases


def _sentence(error: ValidationError) -> str:
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return f"{where!r} is unknown there"
    return f"{where}: {first['msg']}" if where else first["msg"]
