from __future__ import annotations

import pickle
from typing import Any

import pytest

from thin_client.spark.offsets import EARLIEST, LATEST, Position
from thin_client.spark.options import Connecting, OptionError, ReadOptions, WriteOptions
from thin_client.spark.selection import Selection

LEAST = {"servers": "proxy-a, proxy-b:9714", "group": "lake", "subscribe": "orders"}


def read(streaming: bool = False, **given: str) -> ReadOptions:
    return ReadOptions.parse({**LEAST, **given}, streaming=streaming)


def refused(streaming: bool = False, without: str = "", **given: str) -> str:
    options = {name: text for name, text in {**LEAST, **given}.items() if name != without}
    with pytest.raises(OptionError) as caught:
        ReadOptions.parse(options, streaming=streaming)
    sentence = str(caught.value)
    assert "\n" not in sentence
    return sentence


def test_three_options_are_enough_to_read() -> None:
    assert read() == ReadOptions(
        connecting=Connecting(servers=("proxy-a:9713", "proxy-b:9714"), group="lake"),
        selection=Selection(subscribe=("orders",)),
        starting=Position(EARLIEST, option="startingOffsets"),
        ending=Position(LATEST, option="endingOffsets"),
    )
    assert read(streaming=True).starting.value == LATEST


def test_names_may_be_written_in_letters_of_any_size() -> None:
    assert read(MINPARTITIONS="8", failondataloss="FALSE") == read(
        minPartitions="8", failOnDataLoss="false"
    )


def test_options_can_be_pickled_for_the_executors() -> None:
    options: Any = [read(tls="true"), WriteOptions.parse({"servers": "proxy"}, streaming=True)]
    assert pickle.loads(pickle.dumps(options)) == options


def test_what_says_nothing_of_what_to_read_is_refused() -> None:
    assert "one of subscribe, subscribePattern and assign" in refused(without="subscribe")
