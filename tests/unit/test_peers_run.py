"""What of peers is in the run's folder, and which address of a node is told."""

import socket
import stat
import threading
from pathlib import Path

import psutil
import pytest

from fsctx.cache.peers.address import cache_name, own_address
from fsctx.errors import InputError, StoreError
from fsctx.protocol import names, peers
from fsctx.protocol.peers import PeerRecord
from fsctx.store import PosixStore


@pytest.fixture
def store(tmp_path: Path) -> PosixStore:
    store = PosixStore(tmp_path)
    store.make_folder(names.PEERS)
    return store


def no_sleep(seconds: float) -> None:
    pass


def test_the_secret_is_readable_by_its_owner_alone(store: PosixStore) -> None:
    assert len(peers.shared_secret(store, sleep=no_sleep)) == 43
    assert stat.S_IMODE((store.root / names.PEERS_KEY).stat().st_mode) == 0o600


def test_agents_that_start_together_have_one_secret(store: PosixStore) -> None:
    found, start = [], threading.Barrier(8)

    def one() -> None:
        start.wait()
        found.append(peers.shared_secret(store, sleep=lambda seconds: threading.Event().wait(seconds)))

    threads = [threading.Thread(target=one) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1


def test_a_secret_that_its_writer_left_empty_is_waited_for(store: PosixStore) -> None:
    path = store.root / names.PEERS_KEY
    path.touch()
    assert peers.shared_secret(store, sleep=lambda _: path.write_text("s" * 43) and None) == "s" * 43


def test_a_secret_that_stays_empty_is_said(store: PosixStore) -> None:
    (store.root / names.PEERS_KEY).touch()
    with pytest.raises(StoreError, match="is not a secret: remove it"):
        peers.shared_secret(store, sleep=no_sleep)


def test_a_peers_record_is_read_as_it_was_written(store: PosixStore) -> None:
    record = PeerRecord(agent="a-1", host="h", address="fd00::1", port=9, cache="c", contexts={"d": b"\xff\x01"})
    peers.announce(store, record)
    peers.shared_secret(store, sleep=no_sleep)
    assert peers.list_peers(store) == ["a-1"]
    assert peers.read_peer(store, "a-1") == record
    peers.withdraw(store, "a-1")
    assert peers.list_peers(store) == []


@pytest.mark.parametrize("content", [b"", b"{", b'{"schema":99}', b'{"schema":1,"agent":"b"}'])
def test_a_record_that_cannot_be_read_is_no_peer(store: PosixStore, content: bytes) -> None:
    (store.root / names.peer("b")).write_bytes(content)
    assert peers.read_peer(store, "b") is None


@pytest.mark.parametrize(
    ("address", "port"), [("", 9), ("a\nb", 9), ("10.0.0.1/8", 9), ("10.0.0.1", 0), ("::1", 70_000)]
)
def test_a_record_without_an_address_is_no_peer(store: PosixStore, address: str, port: int) -> None:
    peers.announce(store, PeerRecord(agent="b", host="h", address=address, port=port, cache="c"))
    assert peers.read_peer(store, "b") is None


def address_of_this_machine() -> tuple[str, str]:
    for interface, entries in psutil.net_if_addrs().items():
        for entry in entries:
            if entry.family == socket.AF_INET and not entry.address.startswith("127."):
                return interface, entry.address
    pytest.skip("this machine has the loopback alone")


def test_an_address_can_be_told_by_itself_its_network_or_its_interface() -> None:
    interface, address = address_of_this_machine()
    network = ".".join(address.split(".")[:2]) + ".0.0/16"
    assert own_address(address) == own_address(network) == own_address(interface) == address


def test_without_being_told_an_address_is_found_that_is_not_the_loopbacks() -> None:
    address_of_this_machine()
    found = own_address(None)
    assert found is not None
    assert found in {entry.address for entries in psutil.net_if_addrs().values() for entry in entries}
    assert not found.startswith("127.")


@pytest.mark.parametrize("wanted", ["203.0.113.9", "203.0.113.0/24", "2001:db8::/64"])
def test_an_address_that_this_node_has_not_is_refused(wanted: str) -> None:
    with pytest.raises(InputError, match="this node has no such address"):
        own_address(wanted)


@pytest.mark.parametrize("wanted", ["nonsense", "10.0.0.0/99", "ib99"])
def test_what_is_no_address_at_all_is_refused(wanted: str) -> None:
    with pytest.raises(InputError, match="is no address, network or interface"):
        own_address(wanted)


def test_two_caches_have_two_names_and_one_has_one(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    (tmp_path / "link").symlink_to("one")
    assert cache_name(tmp_path / "one") == cache_name(tmp_path / "link")
    assert cache_name(tmp_path / "one") != cache_name(tmp_path / "two")
