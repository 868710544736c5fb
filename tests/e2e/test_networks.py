"""Real agents on nodes with odd networks, each in a network namespace of its own: what they fetch, and from where."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e.running import events, fetched_by_source, finish, run_with_files, running, start_agent, wait_at_work
from fabricate import FabricatedRun

SLOW = "fake:rows_per_s=20,batch_tokens=8"
IPV4, IPV6 = ("10.78.0.1/24", "10.78.0.2/24"), ("fd78::1/64", "fd78::2/64")
NOBODY = "02:00:00:00:00:99"

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("ip") is None, reason="network namespaces need root and iproute2"
)


@pytest.fixture
def run(tmp_path: Path) -> FabricatedRun:
    return run_with_files(tmp_path)


def call(words: str) -> None:
    subprocess.run(words.split(), check=True)


def inside(node: str) -> tuple[str, ...]:
    return ("ip", "netns", "exec", node)


@pytest.fixture
def nodes() -> Iterator[tuple[str, str]]:
    """Two nodes with nothing but the loopback."""
    names = (f"fsctx-test-{os.getpid()}-1", f"fsctx-test-{os.getpid()}-2")
    try:
        for name in names:
            call(f"ip netns add {name}")
            call(f"ip -n {name} link set lo up")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False)


def join(nodes: tuple[str, str], addresses: tuple[str, str]) -> None:
    """Give two nodes a link, and one address each."""
    call(f"ip -n {nodes[0]} link add eth0 type veth peer name eth0 netns {nodes[1]}")
    for node, address in zip(nodes, addresses, strict=True):
        call(f"ip -n {node} addr add {address} dev eth0{' nodad' if ':' in address else ''}")
        call(f"ip -n {node} link set eth0 up")


def work_on_both(run: FabricatedRun, nodes: tuple[str, str], tmp_path: Path, *, between: str = "") -> str:
    """Let one node fetch and begin to work, then the other one; return what that said."""
    first = ("--engine", SLOW, "--cache", str(tmp_path / "first"))
    with running(run.root, *first, within=inside(nodes[0])):
        wait_at_work(run)
        if between:
            call(between)
        second = ("--engine", "fake", "--cache", str(tmp_path / "second"))
        [(code, said)] = finish(start_agent(run.root, *second, within=inside(nodes[1])))
    assert code == 0, said
    return said


def test_a_node_without_a_network_reads_the_origin(run: FabricatedRun, nodes: tuple[str, str], tmp_path: Path) -> None:
    work_on_both(run, nodes, tmp_path)
    assert [set(sources) for sources in fetched_by_source(run)] == [{"origin"}, {"origin"}]
    assert {event["why"] for event in events(run, "no_peers")} == {"this node has no address that others could reach"}


@pytest.mark.parametrize("addresses", [IPV4, IPV6], ids=["IPv4 alone", "IPv6 alone"])
def test_nodes_reach_each_other(
    run: FabricatedRun, nodes: tuple[str, str], tmp_path: Path, addresses: tuple[str, str]
) -> None:
    join(nodes, addresses)
    work_on_both(run, nodes, tmp_path)
    assert {event["address"] for event in events(run, "serving")} == {one.partition("/")[0] for one in addresses}
    assert sorted(set(sources) for sources in fetched_by_source(run)) == [{"origin"}, {"peer"}]


def test_between_nodes_that_lose_every_packet_the_origin_is_read(
    run: FabricatedRun, nodes: tuple[str, str], tmp_path: Path
) -> None:
    join(nodes, IPV4)
    wall = f"ip -n {nodes[1]} neigh replace 10.78.0.1 lladdr {NOBODY} dev eth0 nud permanent"
    work_on_both(run, nodes, tmp_path, between=wall)
    assert [set(sources) for sources in fetched_by_source(run)] == [{"origin"}, {"origin"}]
    assert len(events(run, "serving")) == 2


def test_a_proxy_in_the_environment_is_not_asked(run: FabricatedRun, nodes: tuple[str, str], tmp_path: Path) -> None:
    join(nodes, IPV4)
    proxy = dict.fromkeys(("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"), "http://127.0.0.1:9")
    first = ("--engine", SLOW, "--cache", str(tmp_path / "first"))
    with running(run.root, *first, within=inside(nodes[0])):
        wait_at_work(run)
        second = ("--engine", "fake", "--cache", str(tmp_path / "second"))
        [(code, said)] = finish(start_agent(run.root, *second, within=inside(nodes[1]), environ=proxy))
    assert code == 0, said
    assert {"peer"} in [set(sources) for sources in fetched_by_source(run)]
