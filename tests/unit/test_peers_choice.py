"""Which chunk is asked of whom."""

from random import Random

from fsctx.cache.peers.choice import ORIGIN, Choice


def choice(n: int = 4, seed: int = 0) -> Choice:
    return Choice(missing=set(range(n)), chance=Random(seed), late_s=10.0)


def test_what_fewest_peers_have_comes_first() -> None:
    one = choice()
    one.saw("a", {0, 1, 2}, set())
    one.saw("b", {0, 1}, set())
    one.saw("c", {1, 2}, set())
    one.saw("d", {2, 1}, set())
    assert one.from_peer("a", 0.0) == 0


def test_among_equals_chance_decides_so_that_nodes_bring_different_chunks() -> None:
    first = {choice(100, seed).from_origin(0.0) for seed in range(20)}
    assert len(first) > 10


def test_a_chunk_is_asked_of_one_source_at_a_time() -> None:
    one = choice(2)
    one.saw("a", {0, 1}, set())
    one.saw("b", {0, 1}, set())
    got = [one.from_peer("a", 0.0), one.from_peer("b", 0.0)]
    assert sorted(got) == [0, 1]  # type: ignore[type-var]
    assert one.from_peer("b", 0.0) is None


def test_a_chunk_that_is_late_is_asked_of_another_too_but_not_of_the_same() -> None:
    one = choice(1)
    one.saw("a", {0}, set())
    one.saw("b", {0}, set())
    assert one.from_peer("a", 0.0) == 0
    assert one.from_peer("b", 9.9) is None
    assert one.from_peer("b", 10.0) == 0
    assert one.from_peer("a", 99.0) is None


def test_a_source_that_failed_may_be_followed_by_another_at_once() -> None:
    one = choice(1)
    one.saw("a", {0}, set())
    one.saw("b", {0}, set())
    assert one.from_peer("a", 0.0) == 0
    one.failed(0, "a")
    assert one.from_peer("b", 0.0) == 0


def test_what_was_asked_of_a_peer_that_is_lost_may_be_asked_of_another_at_once() -> None:
    one = choice(1)
    one.saw("a", {0}, set())
    one.saw("b", {0}, set())
    assert one.from_peer("a", 0.0) == 0
    one.lost("a")
    assert one.from_peer("b", 0.0) == 0


def test_of_the_origin_is_wanted_what_no_peer_has_or_reads() -> None:
    one = choice()
    one.saw("a", {0}, {1})
    assert one.wanted_of_origin == {2, 3}
    one.lost("a")
    assert one.wanted_of_origin == {0, 1, 2, 3}


def test_when_the_peers_had_their_time_everything_is_read_from_the_origin() -> None:
    one = choice(3)
    one.saw("a", {0, 1}, {2})
    assert one.from_peer("a", 0.0) is not None
    assert {one.from_origin_anyway(1.0) for _ in range(3)} == {0, 1, 2}
    assert one.from_origin_anyway(1.0) is None
    assert one.read_now == {0, 1, 2}


def test_what_arrived_is_asked_of_nobody() -> None:
    one = choice(1)
    one.saw("a", {0}, set())
    one.arrived(0)
    assert one.from_peer("a", 0.0) is None
    assert one.from_origin_anyway(0.0) is None
    assert not one.has_use_for("a")


def test_the_origin_has_a_name_that_no_agent_has() -> None:
    one = choice(1)
    one.from_origin(0.0)
    assert one.read_now == {0}
    assert "-" not in ORIGIN  # an agent's name is host-process-chance
