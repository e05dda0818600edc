"""The peers by the names that ``orderlane bench CASE --vs`` takes."""

from __future__ import annotations

from collections.abc import Mapping

from bench.frame.peer import Peer

PEERS: Mapping[str, Peer] = {}
