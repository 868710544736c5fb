"""Real agents on nodes of their own (a cache each, one loopback): models go from node to node."""

import json
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from e2e.running import (
    events,
    fetched_by_source,
    finish,
    run_with_files,
    running,
    start_agent,
    wait_at_work,
    wait_until,
)
from fabricate import FabricatedRun

from fsctx.cache.peers.address import own_address
from fsctx.protocol import agents, codec, names, peers
from fsctx.protocol.manifest import Context
from fsctx.store import PosixStore

SLOW = "fake:rows_per_s=20,batch_tokens=8"

pytestmark = pytest.mark.skipif(own_address(None) is None, reason="this machine has no address but the loopback's")


@pytest.fixture
def run(tmp_path: Path) -> FabricatedRun:
    return run_with_files(tmp_path)


@pytest.fixture
def first(run: FabricatedRun, tmp_path: Path) -> Iterator[Any]:
    """An agent that has the context and works slowly."""
    with running(run.root, "--engine", SLOW, "--cache", str(tmp_path / "first")) as agent:
        wait_at_work(run)
        yield agent


def size_of(run: FabricatedRun) -> int:
    [name] = {task["context"] for task in json.loads((run.root / names.MANIFEST).read_text())["tasks"]}
    return codec.decode(run.store.read(names.context(name)), Context, where="").size_bytes


def test_a_second_node_has_the_model_from_the_first_and_the_ledger_says_so(
    run: FabricatedRun, first: Any, tmp_path: Path
) -> None:
    [(code, said)] = finish(start_agent(run.root, "--engine", "fake", "--cache", str(tmp_path / "second")))
    assert code == 0, said
    size = size_of(run)
    assert sorted(map(str, fetched_by_source(run))) == [str({"origin": size}), str({"peer": size})]
    ledgers = [agents.read_session(run.store, agent).ledger for agent in agents.list_agents(run.store)]  # type: ignore[union-attr]
    assert sorted((one.bytes_peer, one.bytes_origin) for one in ledgers) == [(0, size), (size, 0)]


def test_an_agent_that_leaves_takes_its_record_with_it(run: FabricatedRun, first: Any) -> None:
    [agent] = peers.list_peers(run.store)
    record = peers.read_peer(run.store, agent)
    assert record is not None
    with socket.create_connection((record.address, record.port)):
        pass
    first.send_signal(signal.SIGTERM)
    finish(first)
    assert peers.list_peers(run.store) == []


def test_a_node_that_was_killed_is_only_a_peer_that_does_not_answer(
    run: FabricatedRun, first: Any, tmp_path: Path
) -> None:
    first.send_signal(signal.SIGKILL)
    finish(first)
    assert len(peers.list_peers(run.store)) == 1
    [(code, said)] = finish(start_agent(run.root, "--engine", "fake", "--cache", str(tmp_path / "second")))
    assert code == 0, said
    assert fetched_by_source(run)[-1] == {"origin": size_of(run)}


def test_without_peers_no_port_is_open_and_the_origin_is_read(run: FabricatedRun, first: Any, tmp_path: Path) -> None:
    options = ("--engine", SLOW, "--cache", str(tmp_path / "second"), "--no-peers")
    with running(run.root, *options) as second:
        wait_until(lambda: len(events(run, "fetched")) == 2)
        assert not [c for c in psutil.Process(second.pid).net_connections() if c.status == psutil.CONN_LISTEN]
    assert {"peer": size_of(run)} not in fetched_by_source(run)
    assert len(peers.list_peers(run.store)) == 1


def test_agents_that_share_a_cache_fetch_once(run: FabricatedRun, first: Any, tmp_path: Path) -> None:
    [(code, said)] = finish(start_agent(run.root, "--engine", "fake", "--cache", str(tmp_path / "first")))
    assert code == 0, said
    assert {} in fetched_by_source(run)


def test_an_address_of_another_node_is_a_mistake_that_is_told(run: FabricatedRun) -> None:
    [(code, said)] = finish(start_agent(run.root, "--engine", "fake", "--peer-address", "203.0.113.7"))
    assert code == 2
    assert "--peer-address 203.0.113.7: this node has no such address" in said
    assert agents.list_agents(run.store) == []


def test_the_secret_is_in_no_file_but_its_own(run: FabricatedRun, first: Any, tmp_path: Path) -> None:
    with running(run.root, "--engine", SLOW, "--cache", str(tmp_path / "second")) as second:
        wait_until(lambda: len(events(run, "fetched")) == 2)
        for agent in (first, second):  # who writes on has files that are gone by the time that they are read
            agent.send_signal(signal.SIGTERM)
        (_, said_first), (_, said_second) = finish(first, second)
    secret = PosixStore(run.root).read(names.PEERS_KEY)
    files = [path for path in run.root.rglob("*") if path.is_file() and not path.is_symlink()]
    assert [path.name for path in files if secret in path.read_bytes()] == ["secret"]
    assert secret.decode() not in said_first + said_second
