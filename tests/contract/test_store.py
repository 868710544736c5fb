"""What every store does: see `fsctx.store.base.Store`. One suite over all implementations."""

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from fsctx.errors import Damaged, Forbidden, Missing, NoSpace, StoreError
from fsctx.store import PosixStore, PublishForm, Store
from fsctx.store.base import TEMPORARY
from fsctx.store.counting import CountingSystem, Meter
from fsctx.store.system import System

MakeStore = Callable[[Path], Store]


def publishing_by_link(root: Path) -> Store:
    return PosixStore(root, form="link")


def counting(root: Path) -> Store:
    return PosixStore(root, system=CountingSystem(System(), Meter()))


IMPLEMENTATIONS: list[MakeStore] = [PosixStore, publishing_by_link, counting]


@pytest.fixture(params=IMPLEMENTATIONS, ids=lambda make: make.__name__)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    made: Store = request.param(tmp_path)
    made.make_folder("f")
    return made


def race(n: int, call: Callable[[int], object]) -> list[object]:
    """Make a call from n threads at once and return what each gave."""
    results: list[object] = [None] * n
    start = threading.Barrier(n)

    def one(number: int) -> None:
        start.wait()
        results[number] = call(number)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_a_folder_that_is_not_there_lists_as_empty(store: Store) -> None:
    assert store.list("nowhere") == []
    assert store.list("f") == []


def test_a_listing_shows_names_and_hides_temporary_ones(store: Store) -> None:
    for name in ("f/b", "f/a", f"f/x{TEMPORARY}1", "f/.nfs0001"):
        store.create(name, b"")
    assert sorted(store.list("f")) == ["a", "b"]


def test_a_private_name_is_created_once_and_readable_by_its_owner_alone(store: Store) -> None:
    assert store.create_private("f/secret", b"mine")
    assert not store.create_private("f/secret", b"yours")
    assert store.read("f/secret") == b"mine"
    assert (store.root / "f/secret").stat().st_mode & 0o777 == 0o600


def test_of_many_who_create_a_private_name_at_once_one_has_it(store: Store) -> None:
    assert sorted(map(bool, race(8, lambda n: store.create_private("f/secret", b"%d" % n)))) == [False] * 7 + [True]


def test_reading_a_missing_name_says_missing(store: Store) -> None:
    for call in (lambda: store.read("f/none"), lambda: store.open("f/none"), lambda: store.read("none/none")):
        with pytest.raises(Missing, match="none"):
            call()


def test_a_name_is_created_once(store: Store) -> None:
    assert store.create("f/a", b"first") is True
    assert store.create("f/a", b"second") is False
    assert store.read("f/a") == b"first"


def test_creating_the_same_content_again_counts_as_ours(store: Store) -> None:
    store.create("f/a", b"mine")
    assert store.create("f/a", b"mine") is True


def test_of_many_creators_at_once_exactly_one_wins(store: Store) -> None:
    for round_number in range(20):
        name = f"f/{round_number}"
        won = race(8, lambda number, name=name: store.create(name, b"owner %d" % number))  # type: ignore[misc]
        assert won.count(True) == 1
        assert store.read(name) == b"owner %d" % won.index(True)


def test_creating_in_a_folder_that_is_not_there_says_missing(store: Store) -> None:
    with pytest.raises(Missing):
        store.create("nowhere/a", b"")


def test_replace_shows_old_or_new_and_leaves_no_other_name(store: Store) -> None:
    store.replace("f/a", b"old")
    store.replace("f/a", b"newer and longer")
    assert store.read("f/a") == b"newer and longer"
    assert store.list("f") == ["a"]


def test_readers_of_a_replaced_file_see_it_whole(store: Store) -> None:
    contents = [bytes([65 + i]) * 50_000 for i in range(4)]
    store.replace("f/a", contents[0])

    def work(number: int) -> bool:
        if number == 0:
            for i in range(40):
                store.replace("f/a", contents[i % 4])
            return True
        return all(store.read("f/a") in contents for _ in range(40))

    assert all(race(4, work))


def test_rewrite_creates_and_then_overwrites_in_place(store: Store) -> None:
    store.rewrite("f/s", b"one..")
    store.rewrite("f/s", b"two")
    assert store.read("f/s") == b"two.."


def test_append_adds_to_the_end(store: Store) -> None:
    store.append("f/e", b"a\n")
    store.append("f/e", b"b\n")
    assert store.read("f/e") == b"a\nb\n"


def test_an_opened_file_can_be_read_at_any_position(store: Store) -> None:
    store.create("f/a", b"0123456789")
    with store.open("f/a") as file:
        file.seek(7)
        assert file.read() == b"789"


def test_the_first_publication_counts_for_good(store: Store) -> None:
    store.create("f/x.0", b"zero")
    store.create("f/x.1", b"one")
    assert store.target("f/x") is None
    assert store.publish("f/x", "x.1") == "x.1"
    assert store.publish("f/x", "x.0") == "x.1"
    assert store.publish("f/x", "x.1") == "x.1"
    assert store.target("f/x") == "x.1"
    assert sorted(store.list("f")) == ["x", "x.0", "x.1"]


def test_of_many_publishers_at_once_all_learn_of_the_same_winner(store: Store) -> None:
    for round_number in range(20):
        name = f"f/{round_number}"
        told = race(8, lambda number, name=name: store.publish(name, f"by.{number}"))  # type: ignore[misc]
        assert len(set(told)) == 1
        assert store.target(name) == told[0]


def test_removing_is_safe_to_repeat(store: Store) -> None:
    store.create("f/a", b"")
    store.remove("f/a")
    store.remove("f/a")
    assert store.list("f") == []


def test_making_a_folder_is_safe_to_repeat(store: Store) -> None:
    store.make_folder("x/y/z")
    store.make_folder("x/y/z")
    assert store.list("x/y") == ["z"]


def test_a_file_where_a_folder_should_be_is_an_error_of_the_store(store: Store) -> None:
    store.create("f/a", b"")
    with pytest.raises(StoreError):
        store.make_folder("f/a")
    with pytest.raises(StoreError):
        store.create("f/a/b", b"")


def test_what_was_published_by_any_form_is_read_by_the_usual_store(tmp_path: Path) -> None:
    for writer in IMPLEMENTATIONS:
        writer(tmp_path).publish(writer.__name__, "x.0")
    assert {PosixStore(tmp_path).target(writer.__name__) for writer in IMPLEMENTATIONS} == {"x.0"}


@pytest.mark.parametrize("content", [b"", b"-> x.0", b"PAR1"])
def test_a_published_name_that_is_something_else_is_damage(store: Store, content: bytes) -> None:
    store.replace("f/x", content)
    with pytest.raises(Damaged, match="f/x is neither a symlink nor the record of one: remove it"):
        store.target("f/x")


class FailsOnce(System):
    """A system whose call of one name fails once: before it happened, or after (a lost reply)."""

    def __init__(self, call: str, number: int, *, after: bool) -> None:
        real, left = getattr(self, call), [number]

        def fails(*args: object, **kwargs: object) -> object:
            done = real(*args, **kwargs) if after or not left else None
            if left:
                raise OSError(left.pop(), os.strerror(number))
            return done

        setattr(self, call, fails)


def failing(folder: Path, call: str, number: int, *, after: bool, form: PublishForm = "symlink") -> PosixStore:
    return PosixStore(folder, system=FailsOnce(call, number, after=after), form=form)


def test_a_full_disk_is_told_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(NoSpace, match="free some space"):
        failing(tmp_path, "rename", errno.ENOSPC, after=False).replace("a", b"x")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.EROFS])
def test_what_is_not_allowed_is_for_the_user_to_mend_and_named_with_its_whole_path(tmp_path: Path, number: int) -> None:
    with pytest.raises(Forbidden, match=f"{tmp_path}/run.json: {os.strerror(number)}: check whose it is") as error:
        failing(tmp_path, "read", number, after=False).read("run.json")
    assert error.value.exit_code == 2


@pytest.mark.parametrize("number", [errno.EIO, errno.EEXIST, errno.ESTALE])
def test_a_publication_whose_reply_was_lost_counts(tmp_path: Path, number: int) -> None:
    assert failing(tmp_path, "symlink", number, after=True).publish("x", "x.0") == "x.0"


@pytest.mark.parametrize("number", [errno.EIO, errno.EEXIST, errno.ESTALE])
def test_a_publication_by_link_whose_reply_was_lost_counts(tmp_path: Path, number: int) -> None:
    assert failing(tmp_path, "link", number, after=True, form="link").publish("x", "x.0") == "x.0"
    assert os.listdir(tmp_path) == ["x"]


@pytest.mark.parametrize("call", ["create", "link"])
def test_a_publication_by_link_that_failed_raises_and_leaves_nothing(tmp_path: Path, call: str) -> None:
    with pytest.raises(StoreError):
        failing(tmp_path, call, errno.EIO, after=False, form="link").publish("x", "x.0")
    assert os.listdir(tmp_path) == []


class LinkReplaces(System):
    """A filesystem that breaks its word as distributed GlusterFS does: every link succeeds, the first one counts."""

    def link(self, source: str, path: str) -> None:
        if not os.path.exists(path):
            super().link(source, path)


def test_where_two_are_told_that_their_link_succeeded_both_go_by_what_stands_there(tmp_path: Path) -> None:
    store = PosixStore(tmp_path, system=LinkReplaces(), form="link")
    assert store.publish("x", "x.0") == "x.0"
    assert store.publish("x", "x.1") == "x.0"


@pytest.mark.parametrize("number", [errno.EIO, errno.EEXIST])
def test_a_creation_whose_reply_was_lost_counts(tmp_path: Path, number: int) -> None:
    assert failing(tmp_path, "create", number, after=True).create("x", b"mine")


def test_a_creation_whose_reply_was_lost_is_not_taken_for_ours_if_it_is_not(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"theirs")
    assert not failing(tmp_path, "create", errno.EIO, after=False).create("x", b"mine")


def test_a_publication_that_failed_raises(tmp_path: Path) -> None:
    with pytest.raises(StoreError):
        failing(tmp_path, "symlink", errno.EIO, after=False).publish("x", "x.0")


def test_a_creation_that_failed_raises(tmp_path: Path) -> None:
    with pytest.raises(StoreError):
        failing(tmp_path, "create", errno.EIO, after=False).create("x", b"mine")


@pytest.mark.parametrize(("call", "name"), [("listdir", "f"), ("read", "f/a"), ("readlink", "f/s")])
def test_a_stale_handle_is_looked_up_again(tmp_path: Path, call: str, name: str) -> None:
    (tmp_path / "f").mkdir()
    (tmp_path / "f" / "a").write_bytes(b"x")
    (tmp_path / "f" / "s").symlink_to("a")
    store = failing(tmp_path, call, errno.ESTALE, after=False)
    looks = {"listdir": store.list, "read": store.read, "readlink": store.target}
    assert looks[call](name) in (["a", "s"], ["s", "a"], b"x", "a")
