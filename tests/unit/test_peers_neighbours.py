"""Whom an agent asks, and whom it does not ask again."""

from pathlib import Path
from random import Random

import pytest
from peering import announce

from fsctx.cache.peers.client import Fault, PeerFailed
from fsctx.cache.peers.neighbours import PUT_OFF_S, Neighbours
from fsctx.protocol.peers import PeerRecord
from fsctx.store import PosixStore


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def pulses() -> dict[str, int | None]:
    return {"a": 5}


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def neighbours(tmp_path: Path, pulses: dict[str, int | None], clock: Clock) -> Neighbours:
    store = PosixStore(tmp_path)
    announce(store, "a", 1)
    me = PeerRecord(agent="me", host="here", address="127.0.0.1", port=1, cache="mine")
    return Neighbours(store=store, me=me, chance=Random(0), clock=clock, pulse=lambda agent: pulses[agent])


def found(neighbours: Neighbours) -> list[str]:
    return [record.agent for record in neighbours.find(3, known=())]


def test_who_is_known_to_be_gone_is_never_asked(neighbours: Neighbours, pulses: dict[str, int | None]) -> None:
    pulses["a"] = None
    assert found(neighbours) == []


def test_who_gave_nothing_is_asked_again_only_when_its_heartbeat_moved(
    neighbours: Neighbours, pulses: dict[str, int | None], clock: Clock
) -> None:
    assert found(neighbours) == ["a"]
    neighbours.failed("a", PeerFailed(Fault.UNREACHABLE, "refused"))
    assert found(neighbours) == []
    clock.now_s += PUT_OFF_S
    assert found(neighbours) == []  # silent since
    pulses["a"] = 6
    clock.now_s += 2 * PUT_OFF_S
    assert found(neighbours) == ["a"]
