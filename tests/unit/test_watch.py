from fsctx.agent.watch import JUST_AFTER_S, Patience, Watch, begin, is_hushed, is_silent, look, telling_s
from fsctx.protocol.agents import AgentState, Session

PATIENCE = Patience(ttl_s=60, stall_s=600)


def session(counter: int, *, progress: int = 0, state: AgentState = AgentState.RUNNING) -> Session:
    return Session(agent="a", counter=counter, progress=progress, state=state)


def after(*looks: tuple[float, Session | None]) -> Watch:
    watch: Watch | None = None
    for now_s, seen in looks:
        watch = look(watch, seen, now_s, PATIENCE)
    assert watch is not None
    return watch


def gone(*looks: tuple[float, Session | None]) -> bool:
    return is_silent(after(*looks), looks[-1][0], PATIENCE)


def silent(until_s: float, *, every_s: float = 10, seen: Session | None = None) -> list[tuple[float, Session | None]]:
    return [(every_s * i, seen) for i in range(int(until_s / every_s) + 1)]


def test_one_look_judges_nobody() -> None:
    assert not gone((0, session(5)))
    assert not gone((0, None))


def test_a_judgement_does_not_outlive_the_look_that_it_rests_on() -> None:
    watch = after(*silent(60, seen=session(5)))
    assert is_silent(watch, 70.0, PATIENCE)
    assert not is_silent(watch, 71.0, PATIENCE)


def test_law_7_an_agent_whose_counter_moved_within_the_time_to_live_is_alive() -> None:
    looks = [(10.0 * i, session(i // 5, progress=i)) for i in range(100)]
    for end in range(1, 100):
        assert not gone(*looks[:end])


def test_an_agent_silent_for_the_time_to_live_is_gone() -> None:
    assert not gone(*silent(59, seen=session(5)))
    assert gone(*silent(60, seen=session(5)))
    assert gone(*silent(60, seen=None))


def test_a_watcher_that_was_frozen_itself_begins_again() -> None:
    assert not gone((0, session(5)), (10, session(5)), (500, session(5)))


def test_a_torn_session_is_no_sign_of_life_and_no_sign_of_death() -> None:
    assert not gone((0, session(5)), (10, None), (20, session(6)))
    assert gone(*silent(50, seen=session(5)), (55.0, None), (60.0, session(5)))


def test_an_agent_that_lives_but_gets_nothing_done_is_gone_after_the_stall_time() -> None:
    looks = [(10.0 * i, session(i, progress=3)) for i in range(61)]
    assert not gone(*looks[:60])
    assert gone(*looks)


def test_loading_for_long_is_no_stall() -> None:
    looks = [(10.0 * i, session(i, state=AgentState.LOADING)) for i in range(100)]
    assert not gone(*looks)


def test_a_watch_begins_with_what_is_seen() -> None:
    assert begin(session(7, progress=2), 3.0) == Watch(
        counter=7, counter_since_s=3.0, progress=2, progress_since_s=3.0, looked_s=3.0
    )


def hushed(*looks: tuple[float, Session | None]) -> bool:
    return is_hushed(after(*looks), looks[-1][0], PATIENCE)


def test_an_agent_that_missed_two_beats_is_hushed_and_not_gone() -> None:
    assert not hushed((0, session(5)), (19, session(5)))
    assert hushed((0, session(5)), (20, session(5)))
    assert not gone((0, session(5)), (20, session(5)))
    assert not hushed((0, session(5)), (20, session(6)))


def test_a_hush_of_which_the_last_look_is_long_ago_counts_for_nothing() -> None:
    watch = after((0, session(5)), (20, session(5)))
    assert is_hushed(watch, 30.0, PATIENCE)
    assert not is_hushed(watch, 30.1, PATIENCE)


def test_only_of_an_owner_that_was_found_silent_it_is_known_when_a_look_tells_more() -> None:
    assert telling_s(after((0, session(5))), PATIENCE) == float("inf")
    assert telling_s(after((0, session(5)), (6, session(5))), PATIENCE) == 20.0 + JUST_AFTER_S
    assert telling_s(after((0, session(5)), (25, session(5))), PATIENCE) == 60.0 + JUST_AFTER_S
    assert telling_s(after((0, session(5)), (25, session(6))), PATIENCE) == float("inf")
