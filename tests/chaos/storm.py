"""``python -m tests.chaos.storm``: a client that acks too much, until SIGTERM.

It handles messages at once, acks each lease several times, from several connections to several
proxies, and between floods them with acks of leases that never existed. At most one ack of a real
lease may count, and none of the others: an answer that one of those is held is an error, exit code
1.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import threading
import time
from copy import copy
from pathlib import Path

from proxy.cli.history_observer import HistoryObserver
from proxy.cli.output import print_json
from proxy.history.record import HistoryWriter
from thin_client import ClientError, Message, Puller

_THREADS, _AT_ONCE, _ACKS, _FLOOD = 4, 16, 3, 20
#: Far above any lease id of a proxy.
_MADE_UP = 1 << 40
_PAUSE_S = 0.02


class Storm:
    """Several threads, each with a connection to each proxy."""

    def __init__(self, options: argparse.Namespace, history: HistoryWriter) -> None:
        self._options, self._history = options, history
        self.stopping = threading.Event()
        self.wrong: list[str] = []

    def run(self, number: int) -> None:
        """Run until ``stopping``."""
        chooser = random.Random(number)
        options, name = self._options, f"{self._options.name}-{number}"
        observer = HistoryObserver(self._history, group=options.group, consumer=name)
        pullers = [
            Puller(proxy, group=options.group, client_id=name)
            for proxy in options.proxies.split(",")
        ]
        while not self.stopping.is_set():
            puller = chooser.choice(pullers)
            try:
                messages = puller.pull(_AT_ONCE, wait_s=0.05)
            except ClientError:
                time.sleep(_PAUSE_S)
                continue
            for message in messages:
                observer.on_handle_start(message)
                observer.on_handle_end(message, "ok")
                self._settle(puller, message)
            for _ in range(_FLOOD if messages else 0):
                self._make_up(chooser.choice(pullers), chooser.choice(messages), chooser)
            time.sleep(_PAUSE_S)
        for puller in pullers:
            puller.close()

    @staticmethod
    def _settle(puller: Puller, message: Message) -> None:
        for _ in range(_ACKS):
            try:
                puller.settle(message)
            except ClientError:
                time.sleep(_PAUSE_S)

    def _make_up(self, puller: Puller, message: Message, chooser: random.Random) -> None:
        other = copy(message)
        other.lease_id = _MADE_UP + chooser.randrange(1 << 20)
        try:
            if puller.settle(other):
                self.wrong.append(f"lease {other.lease_id} of {other.queue} was held")
        except ClientError:
            time.sleep(_PAUSE_S)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--proxies", required=True, help="host:port, separated by commas")
    parser.add_argument("--group", required=True)
    parser.add_argument("--history", type=Path, required=True)
    parser.add_argument("--name", required=True)
    options = parser.parse_args()
    history = HistoryWriter(options.history, options.name, parts=("consumer",))
    storm = Storm(options, history)
    signal.signal(signal.SIGTERM, lambda *_: storm.stopping.set())
    threads = [threading.Thread(target=storm.run, args=(number,)) for number in range(_THREADS)]
    for thread in threads:
        thread.start()
    print_json({"ready": True})
    for thread in threads:
        thread.join()
    history.close()
    for wrong in storm.wrong:
        sys.stderr.write(f"violation: {wrong}\n")
    return 1 if storm.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
