"""Bring a context to N nodes: peers, everybody from the origin, a tree of whole copies.

A node is a network namespace with a link of its own, slowed by tc; the origin is a namespace with a faster one.
Needs root and Linux; says so and ends well elsewhere. Real are: the cache, the server and the client, slots and
records in a run folder, TCP. Made up: the origin is read over HTTP from its namespace instead of through a mounted
filesystem, and the run folder is a local one.

    python bench/broadcast.py                                      256 MiB, 200 Mbit/s a node, 400 Mbit/s the origin
    python bench/broadcast.py --mib 32 --chunk-mib 0.5 --mbit 25   as long, an eighth of the work
"""

import argparse
import dataclasses
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from fsctx.agent.events import EventLog
from fsctx.agent.heartbeat import Heartbeat
from fsctx.agent.options import AgentOptions
from fsctx.agent.peering import PeeringParts, start_peering
from fsctx.agent.world import World
from fsctx.cache import NodeCache
from fsctx.cache.chunks import Bring, Brought, Incoming, Shelf
from fsctx.cache.peers.client import ClientLimits, PeerClient
from fsctx.cache.peers.server import PeerServer, ServerLimits
from fsctx.protocol import codec, names, peers
from fsctx.protocol.agents import AgentState, Session
from fsctx.protocol.manifest import Context, ModelFile
from fsctx.protocol.peers import PeerRecord
from fsctx.store import PosixStore

SECRET = "origin" * 7
WAYS = ("peers", "origin", "tree")
ORIGIN_HOST = 250
GOAL_TIME, GOAL_READS = 1.6, 2.5
PATIENT = ClientLimits(connect_s=30, silence_s=120, slowest_bytes_per_s=1000)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What one measurement is about."""

    way: str
    n_nodes: int
    folder: Path

    def address(self, number: int) -> str:
        """Return a node's address."""
        return f"10.77.0.{number + 1}"

    def cache(self, number: int) -> Path:
        """Return a node's cache."""
        return self.folder / f"cache-{number}"

    @property
    def context(self) -> Context:
        """What is brought."""
        path = self.folder / "context.json"
        return codec.decode(path.read_bytes(), Context, where=str(path))

    @property
    def store(self) -> PosixStore:
        """The run's folder."""
        return PosixStore(self.folder / "run")


# --- what runs in a namespace -------------------------------------------------------------------------------------


def be_origin(setting: Setting) -> None:
    """Serve the origin until the parent hangs up, and say how many bytes were asked for."""
    limits = ServerLimits(uploads=1000, requests_per_s=100_000, hello_s=600, slowest_bytes_per_s=1000)
    context = setting.context
    server = PeerServer(
        Shelf(setting.cache(ORIGIN_HOST), [context]), frozenset([context.digest]), SECRET, limits=limits
    )
    say(server.start(setting.address(ORIGIN_HOST)))
    sys.stdin.read()


def be_node(setting: Setting, number: int, origin_port: int) -> None:
    """Fetch the context when told to; say how long it took and where the bytes came from; serve until told to end."""
    origin = PeerClient(origin_record(setting, origin_port), SECRET, limits=PATIENT)
    bring = {"peers": by_peers, "origin": by_origin, "tree": by_tree}[setting.way](setting, number, origin)
    say("ready")
    sys.stdin.readline()
    began_s, began_cpu_s = time.monotonic(), time.process_time()
    fetched = NodeCache(setting.cache(number)).fetch(setting.context, bring)
    seconds, cpu_s = time.monotonic() - began_s, time.process_time() - began_cpu_s
    say({"seconds": seconds, "bytes": fetched.bytes_by_source, "cpu_s": cpu_s})
    sys.stdin.readline()


def by_peers(setting: Setting, number: int, origin: PeerClient) -> Bring:
    """Do what `fsctx agent` does, but for where the origin is read."""
    agent, world, store = f"node-{number}", World(), setting.store
    store.make_folder(names.agent_folder(agent))
    events = EventLog(store, agent, clock=world.clock, utc=lambda: "")
    session = Session(agent=agent, counter=0, progress=0, state=AgentState.FETCHING)
    heartbeat = Heartbeat(store, session, events, beat_s=5.0, threads=world.threads)
    heartbeat.start(lambda _: None)
    options = AgentOptions(cache=setting.cache(number))
    parts = PeeringParts(
        store=store, contexts=[setting.context], ttl_s=60.0, options=options, heartbeat=heartbeat, world=world
    )
    peering = start_peering(parts, setting.address(number))
    assert peering is not None
    peering.sources = dataclasses.replace(peering.sources, origin=lambda _, chunk: bytes(origin.chunk(chunk)))
    return peering.bring


def by_origin(_setting: Setting, _number: int, origin: PeerClient) -> Bring:
    """Read the origin, as everybody does."""
    return lambda incoming: copy(incoming, origin, "origin")


def by_tree(setting: Setting, number: int, origin: PeerClient) -> Bring:
    """Copy from one that is whole: in round r the nodes that have one give each to one more, so that 2^r have one."""
    context = setting.context
    server = PeerServer(Shelf(setting.cache(number), [context]), frozenset([context.digest]), SECRET)
    store = setting.store
    store.make_folder(names.PEERS)
    peers.announce(store, record(setting, number, server.start(setting.address(number))))
    if number == 0:
        return lambda incoming: copy(incoming, origin, "origin")
    rank = 1 << (number.bit_length() - 1)
    parent = number - rank
    before = [parent, *(parent + step for step in powers(rank) if step > parent)]

    def bring(incoming: Incoming) -> Brought:
        clients = [ask(setting, other) for other in before]
        while any(~byte & 0xFF for client in clients for byte in client.map(context.digest).held[:-1]):
            time.sleep(0.05)
        return copy(incoming, clients[0], "peer")

    return bring


def powers(below: int) -> Iterator[int]:
    step = 1
    while step < below:
        yield step
        step *= 2


def copy(incoming: Incoming, client: PeerClient, source: str) -> Brought:
    chunks = incoming.missing()
    for chunk in chunks:
        incoming.put(chunk, client.chunk(chunk))
    return Brought(bytes_by_source={source: sum(chunk.size_bytes for chunk in chunks)})


def ask(setting: Setting, number: int) -> PeerClient:
    while (found := peers.read_peer(setting.store, f"node-{number}")) is None:
        time.sleep(0.05)
    return PeerClient(found, SECRET, limits=PATIENT)


def record(setting: Setting, number: int, port: int) -> PeerRecord:
    return PeerRecord(
        agent=f"node-{number}", host="", address=setting.address(number), port=port, cache=f"cache-{number}"
    )


def origin_record(setting: Setting, port: int) -> PeerRecord:
    return record(setting, ORIGIN_HOST, port)


def say(something: object) -> None:
    print(json.dumps(something), flush=True)


# --- the network --------------------------------------------------------------------------------------------------


class Network:
    """A bridge with a slowed link to each namespace. All of it is gone after `close`."""

    def __init__(self) -> None:
        self._prefix = f"fsctx{os.getpid() % 100000}"
        self._made: list[str] = []
        self._hub = self._namespace("hub")
        self._in(self._hub, "ip link add br0 type bridge")
        self._in(self._hub, "ip link set br0 up")

    def join(self, number: int, address: str, mbit: float) -> str:
        """Add a node whose link carries so much in each direction; return its namespace."""
        node, outer = self._namespace(str(number)), f"v{number}"
        self._in(self._hub, f"ip link add {outer} type veth peer name eth0 netns {node}")
        self._in(self._hub, f"ip link set {outer} master br0 up")
        for command in ("ip link set lo up", f"ip addr add {address}/24 dev eth0", "ip link set eth0 up"):
            self._in(node, command)
        for namespace, device in ((node, "eth0"), (self._hub, outer)):
            self._in(namespace, f"tc qdisc add dev {device} root tbf rate {mbit:g}mbit burst 128kb latency 100ms")
        return node

    def close(self) -> None:
        """Remove all namespaces, and the links with them."""
        for namespace in self._made:
            subprocess.run(["ip", "netns", "del", namespace], check=False)
        self._made.clear()

    def _namespace(self, name: str) -> str:
        full = f"{self._prefix}-{name}"
        self._made.append(full)
        subprocess.run(["ip", "netns", "add", full], check=True)
        return full

    def _in(self, namespace: str, command: str) -> None:
        subprocess.run(["ip", "netns", "exec", namespace, *command.split()], check=True)


# --- one measurement ----------------------------------------------------------------------------------------------


def measure(setting: Setting, network: list[str], origin_namespace: str) -> dict[str, float]:
    """Fetch on all nodes at once; return seconds until the last is warm, and how often the origin was read."""
    with ExitStack() as stack:
        origin = stack.enter_context(child(setting, origin_namespace, "--be-origin"))
        port = json.loads(origin.stdout.readline())
        nodes = [
            stack.enter_context(child(setting, network[number], "--be-node", str(number), "--port", str(port)))
            for number in range(setting.n_nodes)
        ]
        for node in nodes:
            assert json.loads(node.stdout.readline()) == "ready"
        for node in nodes:
            node.stdin.write("go\n")
            node.stdin.flush()
        told = [json.loads(node.stdout.readline()) for node in nodes]
    size_bytes = setting.context.size_bytes
    return {
        "seconds": round(max(one["seconds"] for one in told), 2),
        "origin_reads": round(sum(one["bytes"].get("origin", 0) for one in told) / size_bytes, 2),
        "moved": round(sum(sum(one["bytes"].values()) for one in told) / size_bytes / setting.n_nodes, 2),
        "cpu_s": round(sum(one["cpu_s"] for one in told), 1),
    }


@contextmanager
def child(setting: Setting, namespace: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run this program in a namespace, and end it."""
    call = [sys.executable, __file__, *arguments, "--way", setting.way, "--folder", str(setting.folder)]
    process = subprocess.Popen(
        ["ip", "netns", "exec", namespace, *call], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def make_context(folder: Path, mib: float, chunk_mib: float) -> Context:
    """Write the model where the origin's server finds it, and its record."""
    chance, size_bytes, chunk_bytes = random.Random(0), int(mib * (1 << 20)), int(chunk_mib * (1 << 20))
    path = folder / "model" / "weights"
    path.parent.mkdir(parents=True)
    chunks = []
    with open(path, "wb") as file:
        for at in range(0, size_bytes, chunk_bytes):
            piece = chance.randbytes(min(chunk_bytes, size_bytes - at))
            file.write(piece)
            chunks.append(hashlib.sha256(piece).hexdigest())
    digest = hashlib.sha256("".join(chunks).encode()).hexdigest()
    weights = ModelFile(path="weights", size_bytes=size_bytes, chunks=tuple(chunks))
    context = Context(
        digest=digest, kind="hf", name="model", origin=str(path.parent), files=(weights,), chunk_bytes=chunk_bytes
    )
    (folder / "context.json").write_bytes(codec.encode(context))
    return context


def compare(asked: argparse.Namespace, folder: Path) -> Iterator[dict[str, float | str | int]]:
    """Measure all ways on all numbers of nodes."""
    network = Network()
    try:
        context = make_context(folder, asked.mib, asked.chunk_mib)
        any_setting = Setting(way="", n_nodes=0, folder=folder)
        NodeCache(any_setting.cache(ORIGIN_HOST)).fetch(context)
        origin = network.join(ORIGIN_HOST, any_setting.address(ORIGIN_HOST), 2 * asked.mbit)
        nodes = [network.join(n, any_setting.address(n), asked.mbit) for n in range(max(asked.nodes))]
        for n_nodes in asked.nodes:
            for way in asked.ways:
                setting = Setting(way=way, n_nodes=n_nodes, folder=folder)
                yield {"way": way, "nodes": n_nodes, **measure(setting, nodes, origin)}
                for path in (folder / "run", *(setting.cache(n) for n in range(n_nodes))):
                    shutil.rmtree(path, ignore_errors=True)
    finally:
        network.close()


def judge(rows: list[dict]) -> dict[str, object]:
    """Say whether the goals are met, where one node and the most nodes were measured."""
    mine = {row["nodes"]: row for row in rows if row["way"] == "peers"}
    if 1 not in mine or len(mine) < 2:
        return {}
    most = mine[max(mine)]
    slowdown = round(most["seconds"] / mine[1]["seconds"], 2)
    is_met = slowdown <= GOAL_TIME and most["origin_reads"] <= GOAL_READS
    return {"nodes": max(mine), "slowdown": slowdown, "origin_reads": most["origin_reads"], "is_goal_met": is_met}


def main() -> None:
    asked = arguments()
    setting = Setting(way=asked.way, n_nodes=0, folder=asked.folder or Path())
    if asked.be_origin:
        be_origin(setting)
    elif asked.be_node is not None:
        be_node(setting, asked.be_node, asked.port)
    elif os.geteuid() != 0 or shutil.which("ip") is None or shutil.which("tc") is None:
        print("skipped: network namespaces need root, and the commands ip and tc (iproute2)")
        print(json.dumps({"bench": "broadcast", "skipped": "needs root, ip and tc"}))
    else:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.default_int_handler)  # the network is taken down again
        report(asked)


def report(asked: argparse.Namespace) -> None:
    rows = []
    print(f"{'nodes':>5} {'way':>7} {'seconds':>8} {'origin read':>12} {'moved':>6} {'cpu s':>6}")
    with tempfile.TemporaryDirectory(dir=asked.scratch) as folder:
        for row in compare(asked, Path(folder)):
            rows.append(row)
            print(
                f"{row['nodes']:>5} {row['way']:>7} {row['seconds']:>8} {row['origin_reads']:>12} "
                f"{row['moved']:>6} {row['cpu_s']:>6}",
                flush=True,
            )
    setting = {"mib": asked.mib, "chunk_mib": asked.chunk_mib, "mbit": asked.mbit, "cores": os.cpu_count()}
    print(json.dumps({"bench": "broadcast", **setting, "rows": rows, **judge(rows)}))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=float, default=256)
    parser.add_argument("--chunk-mib", type=float, default=4)
    parser.add_argument("--mbit", type=float, default=200, help="of a node's link; the origin has twice as much")
    parser.add_argument("--nodes", type=lambda text: [int(n) for n in text.split(",")], default=[1, 2, 4, 8, 16])
    parser.add_argument("--ways", type=lambda text: text.split(","), default=list(WAYS))
    parser.add_argument("--scratch", type=Path, default=None, help="where the caches go; in memory is best")
    for hidden in ("--way", "--folder"):
        parser.add_argument(hidden, type=Path if hidden == "--folder" else str, default=None, help=argparse.SUPPRESS)
    parser.add_argument("--be-origin", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--be-node", type=int, default=None, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, default=None, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
