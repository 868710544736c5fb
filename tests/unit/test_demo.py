"""The demo's parts: its folder, whom it kills, what it shows and says."""

from collections.abc import Iterable
from pathlib import Path

import pytest
from fabricate import FabricatedRun, add_agent, fabricate, finish_all, finish_unit, lease_unit
from rich.console import Console

from fsctx.coordinator.collect import collect as collecting
from fsctx.coordinator.progress import AgentView, RowCounts, RunState, Status, UnitCounts
from fsctx.coordinator.status import read_status
from fsctx.demo.closing import next_lines, proof_lines, time_lines
from fsctx.demo.fleet import Fleet, choose_victim, fleet_of, units_in_hand
from fsctx.demo.folder import Try, new_try
from fsctx.demo.follow import follow, is_time
from fsctx.demo.screen import Lines, agents_line, screen_on
from fsctx.demo.story import check_installation
from fsctx.errors import InputError, NotComplete
from fsctx.protocol.agents import AgentState, Ledger
from fsctx.protocol.orders import read_orders


class FakeScreen:
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.shown: list[Status] = []

    def say(self, line: str) -> None:
        self.said.append(line)

    def show(self, status: Status) -> None:
        self.shown.append(status)


def an_agent(name: str, state: AgentState = AgentState.RUNNING, *, rate: float = 0.0) -> AgentView:
    return AgentView(agent=name, state=state, rows_per_s=rate)


def a_status(agents: Iterable[AgentView] = (), *, done: int = 0, total: int = 90) -> Status:
    return Status(
        run="r",
        state=RunState.RUNNING,
        units=UnitCounts(total=9, done=0, leased=0, free=9, failed=0),
        rows=RowCounts(total=total, done=done, failed=0),
        agents=tuple(agents),
    )


def test_each_try_has_names_of_its_own(tmp_path: Path) -> None:
    first = new_try(tmp_path / "demo", n_claims=30)
    first.run.mkdir()
    second = new_try(tmp_path / "demo", n_claims=40)
    assert (first.number, second.number) == (1, 2)
    assert len(first.claims.read_text(encoding="utf-8").splitlines()) == 30
    assert len(second.claims.read_text(encoding="utf-8").splitlines()) == 40
    assert not {first.run, first.verdicts, first.report} & {second.run, second.verdicts, second.report}


def test_numbers_are_never_used_twice_though_claims_were_removed(tmp_path: Path) -> None:
    (tmp_path / "verdicts-7.parquet").touch()
    assert new_try(tmp_path, n_claims=30).number == 8


def test_a_folder_with_other_files_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(InputError, match=r"thesis\.tex"):
        new_try(tmp_path, n_claims=30)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_file_in_the_place_of_the_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="file cannot be used for the demo"):
        new_try(tmp_path / "file", n_claims=30)


def test_the_agent_with_most_in_hand_is_killed_and_only_where_another_one_lives() -> None:
    one, two, gone = an_agent("one"), an_agent("two", AgentState.LOADING), an_agent("gone", AgentState.LEFT)
    assert choose_victim(a_status([one, two]), {"one": 2, "two": 5}) == two
    assert choose_victim(a_status([one, two]), {"one": 2}) == one
    assert choose_victim(a_status([one, two]), {}) is None
    assert choose_victim(a_status([one, gone]), {"one": 2, "gone": 9}) is None


def test_units_in_hand_are_leased_and_not_done(tmp_path: Path) -> None:
    run = fabricate(tmp_path / "run", n_rows=20, unit_rows=4)
    for unit, owner in enumerate(("a", "a", "b")):
        lease_unit(run, unit, agent=owner)
    finish_unit(run, 1)
    assert units_in_hand(run.store, run.geometry) == {"a": 1, "b": 1}


def test_an_agent_is_killed_when_half_is_done() -> None:
    assert not is_time(a_status(done=44))
    assert is_time(a_status(done=45))


def test_a_fleet_kills_none_but_its_own_agents(tmp_path: Path) -> None:
    run = fabricate(tmp_path / "run")
    add_agent(run, "somebody-elses")
    assert Fleet(run.store).kill("somebody-elses") is None
    assert Fleet(run.store).kill("nobody") is None


def test_a_fleet_that_fails_leaves_an_order_to_stop(tmp_path: Path) -> None:
    run = fabricate(tmp_path / "run")
    with pytest.raises(KeyboardInterrupt), fleet_of(run.store):
        raise KeyboardInterrupt
    assert read_orders(run.store).stop == 1


def test_following_ends_with_the_run(tmp_path: Path) -> None:
    run = fabricate(tmp_path / "run")
    finish_all(run)
    watched = follow(run.store, run.geometry, Fleet(run.store), FakeScreen())
    assert (watched.killed, watched.status.state) == (None, RunState.DONE)


def test_following_a_run_that_nobody_works_on_says_so(tmp_path: Path) -> None:
    run = fabricate(tmp_path / "run")
    with pytest.raises(NotComplete, match="all agents are gone with 0 of 10 claims done"):
        follow(run.store, run.geometry, Fleet(run.store), FakeScreen())


def test_a_log_gets_a_line_when_time_has_passed_and_something_changed(capsys: pytest.CaptureFixture[str]) -> None:
    now_s = 0.0
    screen = Lines(Console(width=200), clock=lambda: now_s)
    screen.show(a_status(done=1))
    screen.show(a_status(done=2))
    now_s = 9.0
    screen.show(a_status(done=3))
    now_s = 20.0
    screen.show(a_status(done=3))
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(";")[0].strip() for line in lines] == ["0 s  1 of 90 claims", "9 s  3 of 90 claims"]


def test_a_terminal_gets_a_bar(capsys: pytest.CaptureFixture[str]) -> None:
    with screen_on(Console(force_terminal=True, width=120)) as screen:
        screen.show(a_status([an_agent("[bold]one", rate=2.5)], done=45))
        screen.say("half of it")
    seen = capsys.readouterr().out
    assert "half of it" in seen
    assert "[bold]one 2.5 claims/s" in seen


def test_agents_are_told_of_in_words() -> None:
    agents = [an_agent("a", AgentState.LOADING), an_agent("b", rate=3.14), an_agent("c")]
    assert agents_line(a_status(agents)) == "a loading the model; b 3.1 claims/s; c computing"
    assert agents_line(a_status()) == "agents are starting"


@pytest.fixture
def done(tmp_path: Path) -> FabricatedRun:
    run = fabricate(tmp_path / "run", n_rows=10, unit_rows=4)
    finish_all(run)
    return run


def test_the_closing_words_give_the_proof(done: FabricatedRun) -> None:
    summary = collecting.collect(done.store, collecting.Request())
    text = "\n".join(proof_lines(summary, n_claims=10, killed="agent-x", n_taken_over=1))
    assert "10 claims were planned, 10 verdicts are in the file: each claim once, 0 missing, 0 twice" in text
    assert "agent-x was killed in the middle" in text
    assert "Units taken over from it: 1." in text
    assert "No agent was killed" in "\n".join(proof_lines(summary, n_claims=10, killed=None, n_taken_over=0))


def test_the_closing_words_say_where_time_went(done: FabricatedRun) -> None:
    add_agent(done, "one", ledger=Ledger(rows_done=10, loads=2, load_s=3.0, infer_s=130.0))
    text = "\n".join(time_lines(read_status(done.store), n_rows=10))
    assert "load 3 s, infer 2 min" in text
    assert "2 loads of the model served 10 claims (5 a load)" in text


def test_the_closing_words_can_be_pasted_into_a_shell() -> None:
    text = "\n".join(next_lines(Try(folder=Path("a b"), number=1), model="/my models/m.gguf", fsctx=".venv/bin/fsctx"))
    assert "  .venv/bin/fsctx plan YOUR_FILE --run my-run --model '/my models/m.gguf'" in text
    assert "status 'a b/run-1'" in text


def test_what_is_not_installed_is_named_with_the_way_out() -> None:
    with pytest.raises(InputError, match=r"needs no_such_package: pip install 'fsctx\[hf\]'.* --model fake"):
        check_installation(None, ["json", "no_such_package"])
    check_installation("fake", ["no_such_package"])
