"""Case ``drain``: a backlog, and handlers that do nothing."""

from __future__ import annotations

from dataclasses import replace

from bench.cases.consuming import CONNECTIONS, consume, lean, plain
from bench.frame.case import Case, Column, NotHere, Plot, Point, Shape
from bench.frame.context import RunContext
from bench.frame.figures import Figures
from bench.frame.peer import Work

_HANDLERS = 64
#: Batch size of peers. They are compared with orderlane at this size only.
_PEER_BATCH = 256


def _work(context: RunContext, batch: Point) -> Work:
    """Return the work; batches of one message are expensive, so fewer messages suffice."""
    messages = context.size("messages") // (8 if batch == 1 else 1)
    return Work(
        messages=messages,
        keys=context.size("keys"),
        concurrency=min(int(batch), _HANDLERS),
        batch=int(batch),
        seed=context.seed,
    )


def _peer_work(context: RunContext, batch: Point) -> Work:
    """Return the work of a peer.

    A peer has its threads at any batch size, and its own ways of taking fewer messages: a smaller
    batch for all would measure the setting, not the peer.
    """
    if batch != _PEER_BATCH:
        raise NotHere
    return replace(_work(context, batch), concurrency=_HANDLERS)


def _lean(context: RunContext, batch: Point) -> Figures:
    return consume(context, _work(context, batch), lean(batch=int(batch)))


def _two_workers(context: RunContext, batch: Point) -> Figures:
    """Return the work for two workers; peers use threads on all processors."""
    if batch != _PEER_BATCH:
        raise NotHere
    return consume(context, _work(context, batch), lean(batch=int(batch)), workers=2)


def _python(context: RunContext, batch: Point) -> Figures:
    work = _work(context, batch)
    return consume(context, work, plain(work))


def _in_codecs(_: RunContext, _batch: Point, figures: Figures) -> Figures:
    """Return the proxy's time as a multiple of a constant reference step."""
    if "proxy_us" not in figures:
        return figures
    return {
        **figures,
        "proxy_codecs": round(float(figures["proxy_us"]) / float(figures["codec_us"]), 2),
    }


CASES = (
    Case(
        name="drain",
        title="Drain",
        question="How fast is a backlog consumed, and what does a message cost?",
        about="100,000 keys in 8 queues, bodies of 256 bytes, handlers that do nothing. *lean* is"
        f" one process with {CONNECTIONS} connections that only pull and ack, to leave the"
        " processors to broker and proxy; *lean-2-workers*: the same with a proxy of two"
        " worker processes; *python* is one consumer with the Python client, whose pulls"
        " take a whole batch. Measured from 20 to 90 % of the messages; processor time is"
        " that of the operating system for each process, *chain* their sum; *of the"
        " codec's*: number of messages that could be encoded and decoded in that time. Peers"
        f" only run at {_PEER_BATCH}, with settings for large batches.",
        point="batch",
        points=(1, 32, 256),
        arms={"lean": _lean, "lean-2-workers": _two_workers, "python": _python},
        derived=_in_codecs,
        columns=(
            Column("steady_per_s", "messages/s"),
            Column("steady_per_s", "of rocketmq-orderly", 2, to="rocketmq-orderly"),
            Column("steady_per_s", "of parallel-consumer", 2, to="parallel-consumer"),
            Column("steady_per_s", "of rocketmq-proxy", 2, to="rocketmq-proxy"),
            Column("steady_per_s", "of pulsar-key-shared", 2, to="pulsar-key-shared"),
            Column("proxy_us", "proxy CPU µs", 1),
            Column("broker_us", "broker CPU µs", 1),
            Column("client_us", "client CPU µs", 1),
            Column("chain_us", "chain CPU µs", 1),
            Column("proxy_codecs", "proxy CPU of the codec's", 1),
        ),
        short=Shape(
            rounds=3,
            sizes={"messages": 60_000, "keys": 100_000},
            judged={"messages": 4_000, "keys": 1_000},
            points=(1, 256),
        ),
        full=Shape(
            rounds=5,
            sizes={"messages": 1_000_000, "keys": 100_000},
            judged={"messages": 100_000, "keys": 10_000},
            peers=(
                *("rocketmq-orderly", "rocketmq-proxy", "pulsar-key-shared"),
                *("parallel-consumer", "orderlane-java"),
            ),
        ),
        work=_peer_work,
        histories="apart",
        plots=(Plot(Column("proxy_us", "proxy CPU µs a message"), log_x=True, log_y=True),),
    ),
)
