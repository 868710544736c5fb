"""What `logs` shows of agents and pilots, and how it reads on."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from fabricate import FabricatedRun, add_agent, fabricate, finish_all

from fsctx.cli.logs import logs as command
from fsctx.coordinator.logs.entries import Entry, as_json, as_text, by_time, event_entry
from fsctx.coordinator.logs.read import follow, pilot_logs
from fsctx.coordinator.logs.tail import Tail, last_lines
from fsctx.errors import InputError
from fsctx.protocol import names
from fsctx.protocol.agents import AgentState
from fsctx.store import PosixStore

EARLY, LATE = "2026-11-30T10:00:00.000+00:00", "2026-11-30T10:00:09.000+00:00"


@pytest.fixture
def run(tmp_path: Path) -> FabricatedRun:
    return fabricate(tmp_path / "my run")


def note(run: FabricatedRun, agent: str, time: str, event: str, **fields: object) -> None:
    line = json.dumps({"at_s": 1.0, "time": time, "event": event, **fields})
    run.store.append(names.events(agent), line.encode() + b"\n")


def print_as_pilot(run: FabricatedRun, name: str, text: str) -> None:
    path = run.root / names.LOGS / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def shown(run: FabricatedRun, *words: str) -> list[str]:
    done = CliRunner().invoke(command, [str(run.root), *words], catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout.splitlines()


def test_all_agents_are_merged_by_the_times_that_they_wrote(run: FabricatedRun) -> None:
    for agent in ("agent-1", "agent-2"):
        add_agent(run, agent)
        note(run, agent, EARLY if agent == "agent-2" else LATE, "leased", unit=7)
    first, second = shown(run)
    assert (first.split(), second.split()) == (
        [EARLY, "agent-2", "leased", "unit=7"],
        [LATE, "agent-1", "leased", "unit=7"],
    )


def test_one_agent_is_shown_alone_and_without_its_name(run: FabricatedRun) -> None:
    for agent in ("agent-1", "agent-2"):
        add_agent(run, agent)
        note(run, agent, EARLY, "left", reason="every unit is done")
    assert shown(run, "agent-2") == [f"{EARLY}  left        reason=every unit is done"]


def test_an_agents_own_order_outlives_a_clock_that_was_set_back() -> None:
    entries = [
        event_entry("a", json.dumps({"event": f"e{n}", "time": time})) for n, time in enumerate((LATE, EARLY, LATE))
    ]
    assert [entry.event for entry in by_time(entries)] == ["e0", "e1", "e2"]


def test_what_is_no_event_is_shown_as_it_stands_and_moves_no_cursor() -> None:
    entry = event_entry("agent-1", "\x1b[2Jhalf an ev")
    assert as_text(entry, is_named=True) == "agent-1  \\x1b[2Jhalf an ev"
    assert json.loads(as_json(entry)) == {"log": "agent-1", "text": "\x1b[2Jhalf an ev"}
    assert event_entry("agent-1", "[1]") == Entry(source="agent-1", text="[1]")


def test_json_has_the_agent_and_all_that_it_wrote(run: FabricatedRun) -> None:
    add_agent(run)
    note(run, "agent-1", EARLY, "leased", unit=7)
    [line] = shown(run, "--json")
    assert json.loads(line) == {"agent": "agent-1", "at_s": 1.0, "time": EARLY, "event": "leased", "unit": 7}


def test_what_pilots_printed_is_found_whoever_started_them(run: FabricatedRun) -> None:
    print_as_pilot(run, "local-1-0.log", "no such engine\nlast words")
    print_as_pilot(run, "condor-2/0.log", "x\n")
    assert pilot_logs(run.store) == ["condor-2/0.log", "local-1-0.log"]
    assert shown(run, "local-1-0.log") == ["no such engine", "last words"]
    assert [json.loads(line) for line in shown(run, "condor-2/0.log", "--json")] == [
        {"log": "condor-2/0.log", "text": "x"}
    ]


def test_without_a_name_it_says_where_pilots_words_are(run: FabricatedRun) -> None:
    print_as_pilot(run, "local-1-0.log", "x")
    done = CliRunner().invoke(command, [str(run.root)], catch_exceptions=False)
    assert (done.stdout, done.stderr.count("local-1-0.log")) == ("", 1)


def test_a_name_that_is_not_there_is_answered_with_those_that_are(run: FabricatedRun) -> None:
    with pytest.raises(InputError, match=r"has no agent x, nor any other yet; start one: fsctx submit '.*my run'"):
        follow(run.store, "x")
    for number in range(10):
        add_agent(run, f"agent-{number}")
    print_as_pilot(run, "local-1-0.log", "x")
    with pytest.raises(InputError, match=r"no log x; .*agents: agent-0, .*agent-7 and 2 more; logs: local-1-0.log"):
        follow(run.store, "x")


def test_a_folder_that_is_no_run_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        follow(PosixStore(tmp_path), None)


def test_reading_on_gives_each_line_once_and_half_a_line_when_it_is_whole(run: FabricatedRun) -> None:
    add_agent(run)
    name = names.events("agent-1")
    tail = Tail(store=run.store, name=name)
    assert tail.read_on() == []
    run.store.append(name, b"one\ntw")
    assert (tail.read_on(), tail.read_on(), tail.rest()) == (["one"], [], ["tw"])
    run.store.append(name, "ö\n".encode()[:1])
    assert tail.read_on() == []
    run.store.append(name, "ö\n".encode()[1:])
    assert (tail.read_on(), tail.rest()) == (["twö"], [])


def test_an_agent_that_comes_later_is_followed_too(run: FabricatedRun) -> None:
    followed = follow(run.store, None)
    assert followed.read_on() == []
    add_agent(run)
    note(run, "agent-1", EARLY, "started")
    assert [entry.event for entry in followed.read_on()] == ["started"]


def test_half_an_event_is_never_shown(run: FabricatedRun) -> None:
    add_agent(run)
    run.store.append(names.events("agent-1"), b'{"event": "lea')
    assert shown(run) == []


def test_following_ends_when_the_run_is_over(run: FabricatedRun) -> None:
    add_agent(run, state=AgentState.LEFT)
    note(run, "agent-1", EARLY, "left")
    finish_all(run)
    assert len(shown(run, "--follow")) == 1


def test_the_last_lines_of_a_long_log_are_whole(run: FabricatedRun) -> None:
    add_agent(run)
    name = names.events("agent-1")
    assert last_lines(run.store, name, n_bytes=8) == []
    run.store.append(name, b"first\nsecond\nthird\n")
    assert last_lines(run.store, name, n_bytes=8) == ["third"]
    assert last_lines(run.store, name, n_bytes=100) == ["first", "second", "third"]
