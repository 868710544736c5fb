"""The bootstrap's turns at the shared filesystem: two nodes at a time; the others wait for a peer, not for ever."""

import threading
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from environments import bootstrap, bootstrap_module, make_archive, register, told

from fsctx.protocol import names


class World:
    """The module with a clock that only its own rests move."""

    def __init__(self, folder: Path) -> None:
        self.now_s = 0.0
        self.folder = folder
        self.module: ModuleType = bootstrap_module()
        self.module.time = SimpleNamespace(monotonic=lambda: self.now_s, sleep=self._rest)  # type: ignore[attr-defined]

    def slot(self, size: int = 0) -> Any:
        return self.module.Slot(str(self.folder), size)

    def _rest(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "slots")


def test_two_nodes_read_and_the_third_has_its_turn_when_one_is_done(world: World) -> None:
    first, second, third = world.slot(), world.slot(), world.slot()
    assert [first.take(), second.take(), third.take()] == [True, True, False]
    first.free()
    assert third.take()
    assert sorted(path.suffix for path in world.folder.iterdir()) == [".0", ".0", ".1"]


def test_who_holds_a_slot_keeps_it_while_it_counts_and_loses_it_when_it_does_not(world: World) -> None:
    holders, waiting = [world.slot() for _ in range(2)], world.slot(size=10**12)
    for _ in range(100):
        assert all(holder.take() for holder in holders)
        assert not waiting.take()
    alive, dead = holders
    began_s = world.now_s
    while not waiting.take():
        alive.take()
    assert world.now_s - began_s >= waiting.TTL_S - waiting.LONGEST_REST_S
    assert Path(waiting._path).stem == Path(dead._path).stem
    assert Path(waiting._path).stem != Path(alive._path).stem


def test_nobody_waits_for_ever(world: World) -> None:
    holders, waiting = [world.slot() for _ in range(2)], world.slot(size=200_000_000)
    n_tries = 0
    while all(holder.take() for holder in holders) and not waiting.take():
        n_tries += 1
    assert world.now_s == pytest.approx(waiting.PATIENCE_S + 10)
    assert n_tries < 20


def test_where_slots_cannot_be_made_the_archive_is_read(world: World) -> None:
    world.folder.write_text("no folder")
    assert world.slot().take()


def test_a_slots_folder_stays_small_and_of_nodes_that_try_at_once_one_gets_it(world: World) -> None:
    for _ in range(20):
        slot = world.slot()
        assert slot.take()
        slot.free()
    assert len(list(world.folder.iterdir())) <= 4
    barrier, got = threading.Barrier(8), []

    def race() -> None:
        slot = world.slot()
        barrier.wait()
        got.append(slot._try())

    racers = [threading.Thread(target=race) for _ in range(8)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    taken = [path for path in got if path is not None]
    assert 1 <= len(taken) <= 2
    assert len(set(taken)) == len(taken)


def test_a_node_that_has_what_it_wanted_gives_its_slot_back(tmp_path: Path) -> None:
    run, archive = tmp_path / "run", make_archive(tmp_path / "env.tar.gz")
    context = register(run, archive)
    assert told(bootstrap(run, context.digest, "--cache", str(tmp_path / "cache")))
    assert [path.read_bytes() for path in (run / names.SLOTS).iterdir()] == [b"free\n"]
    told(bootstrap(run, context.digest, "--cache", str(tmp_path / "other"), "--no-peers"))
    assert len(list((run / names.SLOTS).iterdir())) == 1
