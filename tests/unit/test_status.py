"""What `status` says of runs in all conditions."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from fabricate import FabricatedRun, add_agent, fabricate, fail_unit, finish_all, finish_unit, lease_unit

from fsctx.cli.status import status as command
from fsctx.coordinator import status_text
from fsctx.coordinator.progress import AgentView, RunState, Status, to_json
from fsctx.coordinator.status import read_status
from fsctx.coordinator.submit.record import Submission, write_submission
from fsctx.coordinator.watching import is_over, with_silences
from fsctx.errors import InputError
from fsctx.protocol import leases, names, orders, processes
from fsctx.protocol.agents import AgentRecord, AgentState, Ledger
from fsctx.protocol.codec import encode
from fsctx.protocol.names import LeaseId
from fsctx.protocol.processes import Process
from fsctx.store import PosixStore

PILOTS = ("pilots", "unasked", "sweep")


@pytest.fixture
def run(tmp_path: Path) -> FabricatedRun:
    """26 units of two tasks; the last slice of each is short (4 of 8 rows)."""
    return fabricate(tmp_path / "run", n_rows=100, unit_rows=8, models=("a", "b"))


def look(run: FabricatedRun) -> Status:
    return read_status(run.store)


def submitted(run: FabricatedRun, name: str, *, since_order: int) -> None:
    record = Submission(
        name=name, batch="local", wanted=1, since_order=since_order, text="", version="0", created="2026-01-01"
    )
    write_submission(run.store, record)


def of_submission(run: FabricatedRun, agent: str, submission: str) -> None:
    record = AgentRecord(
        agent=agent,
        process=Process(host="elsewhere", boot_id="b", pid=1, started_ticks=1),
        started="",
        version="0",
        python="3",
        engine="fake",
        device="cpu",
        cores=1,
        memory_bytes=1,
        submission=submission,
    )
    run.store.replace(names.agent_record(agent), encode(record))


def test_a_run_that_nobody_works_on_waits(run: FabricatedRun) -> None:
    seen = look(run)
    assert seen.state == RunState.WAITING
    assert (seen.units.total, seen.units.free, seen.units.done) == (26, 26, 0)
    assert (seen.rows.total, seen.rows.done) == (200, 0)
    assert seen.eta_s is None
    assert seen.agents == ()


def test_the_document_has_the_promised_shape(run: FabricatedRun) -> None:
    add_agent(run, ledger=Ledger(rows_done=30, loads=2, infer_s=1.5), rows_per_s=4.0)
    document = json.loads(json.dumps(to_json(look(run))))
    assert list(document) == ["run", "state", "units", "rows", "agents", "rows_per_s", "eta_s", "goodput", *PILOTS]
    assert list(document["units"]) == ["total", "done", "leased", "free", "failed", "dropped"]
    assert list(document["rows"]) == ["total", "done", "dropped"]
    wanted = {"agent", "host", "device", "state", "unit", "rows_per_s", "context", "source"}
    assert wanted <= document["agents"][0].keys()
    assert (document["rows_per_s"], document["eta_s"]) == (4.0, 50.0)
    assert document["goodput"]["rows_per_load"] == 15.0
    assert document["goodput"]["seconds"]["infer"] == 1.5


def test_an_agents_context_is_shown_with_what_it_took_to_get_it(run: FabricatedRun) -> None:
    [context] = {task.context for task in run.manifest.tasks if task.model == run.manifest.tasks[0].model}
    add_agent(run, "agent-1", context=context, source="origin", fetched_bytes=3_700_000_000, ready_s=45.2)
    add_agent(run, "agent-2", context=context, source="node", ready_s=4.0)
    add_agent(run, "agent-3")
    seen = look(run)
    lines = [" ".join(line.split()) for line in status_text.plain_table(status_text.agent_rows(seen))]
    model = run.manifest.tasks[0].model
    assert [line for line in lines if f"{model} origin 3.70 GB, 45 s" in line]
    assert [line for line in lines if f"{model} node, 4 s" in line]
    told = [(a["model"], a["source"], a["fetched_bytes"], a["ready_s"]) for a in to_json(seen)["agents"]]
    assert told == [(model, "origin", 3_700_000_000, 45.2), (model, "node", 0, 4.0), (None, None, 0, 0.0)]


def test_the_engine_of_the_agents_is_told_with_the_reason(run: FabricatedRun) -> None:
    for agent in ("agent-1", "agent-2"):
        add_agent(run, agent, engine="hf", engine_why="the device is a CPU")
    seen = look(run)
    assert "engine hf, as the device is a CPU (2 agent(s))" in status_text.summary(seen, root="r")
    told = [(agent["engine"], agent["engine_why"]) for agent in to_json(seen)["agents"]]
    assert told == [("hf", "the device is a CPU")] * 2


def test_calls_to_the_filesystem_are_told_per_unit_and_per_second(run: FabricatedRun) -> None:
    assert not [line for line in status_text.summary(look(run), root="r") if line.startswith("calls")]
    add_agent(run, ledger=Ledger(units_done=4, fs_calls=38), fs_calls_per_s=2.5)
    seen = look(run)
    assert "calls  38 to the filesystem, 9.5 per unit, 2.5/s now" in status_text.summary(seen, root="r")
    told = to_json(seen)["goodput"]
    assert (told["fs_calls"], told["fs_calls_per_unit"], told["fs_calls_per_s"]) == (38, 9.5, 2.5)
    assert to_json(seen)["agents"][0]["fs_calls_per_s"] == 2.5


def test_where_the_models_came_from_is_told_in_bytes(run: FabricatedRun) -> None:
    assert not [line for line in status_text.summary(look(run), root="r") if line.startswith("files")]
    add_agent(run, ledger=Ledger(bytes_peer=3_000_000_000, bytes_origin=500_000_000), source="peer")
    seen = look(run)
    assert "files  3.00 GB from peers, 0.50 GB from the shared filesystem" in status_text.summary(seen, root="r")
    assert to_json(seen)["goodput"]["bytes"] == {"node": 0, "peer": 3_000_000_000, "origin": 500_000_000}
    assert to_json(seen)["agents"][0]["source"] == "peer"


def test_rows_of_short_last_slices_are_counted_exactly(run: FabricatedRun) -> None:
    add_agent(run)
    for unit in (0, 12, 25):  # 12 and 25 are the last slices of their tasks
        finish_unit(run, unit)
    assert look(run).rows.done == 8 + 4 + 4
    finish_all(run, but=(0, 12, 25))
    assert look(run).rows.done == 200


def test_units_are_counted_by_what_became_of_them(run: FabricatedRun) -> None:
    add_agent(run, rows_per_s=8.0)
    finish_unit(run, 0)
    fail_unit(run, 1)
    lease_unit(run, 2)
    seen = look(run)
    counts = seen.units
    assert (counts.done, counts.failed, counts.leased, counts.free) == (1, 1, 1, 23)
    assert [f.unit for f in seen.failures] == [1]
    assert seen.eta_s == (200 - 8 - 8) / 8.0


def test_what_nobody_alive_holds_is_free(run: FabricatedRun) -> None:
    lease_unit(run, 2)
    leases.take(run.store, LeaseId(3, 0), leases.NOBODY, token="t")
    add_agent(run, state=AgentState.LEFT)
    assert (look(run).units.leased, look(run).units.free) == (0, 26)


def test_a_finished_run_is_done_whatever_its_agents_say(run: FabricatedRun) -> None:
    add_agent(run)
    finish_all(run)
    assert look(run).state == RunState.DONE
    assert look(run).eta_s == 0.0


def test_a_run_with_only_failed_units_left_is_incomplete(run: FabricatedRun) -> None:
    finish_all(run, but=[4])
    fail_unit(run, 4)
    assert look(run).state == RunState.INCOMPLETE


def test_a_run_without_claims_is_done(tmp_path: Path) -> None:
    assert look(fabricate(tmp_path / "run", n_rows=0)).state == RunState.DONE


def test_a_run_with_a_live_agent_is_running(run: FabricatedRun) -> None:
    add_agent(run)
    assert look(run).state == RunState.RUNNING


def test_a_run_whose_agents_must_obey_a_newer_order_is_draining(run: FabricatedRun) -> None:
    add_agent(run)
    submitted(run, "s", since_order=0)
    of_submission(run, "agent-1", "s")
    assert look(run).state == RunState.RUNNING
    orders.give_order(run.store, "drain")
    assert look(run).state == RunState.DRAINING
    add_agent(run, "agent-2")
    submitted(run, "later", since_order=1)
    of_submission(run, "agent-2", "later")
    assert look(run).state == RunState.RUNNING


def test_a_run_whose_agents_say_that_they_leave_is_draining(run: FabricatedRun) -> None:
    add_agent(run, state=AgentState.LEAVING)
    assert look(run).state == RunState.DRAINING


def test_a_stopped_run_is_stopped_until_agents_are_submitted_anew(run: FabricatedRun) -> None:
    submitted(run, "s", since_order=0)
    add_agent(run, state=AgentState.LEFT)
    assert look(run).state == RunState.WAITING
    orders.give_order(run.store, "stop")
    assert look(run).state == RunState.STOPPED
    submitted(run, "later", since_order=1)
    assert look(run).state == RunState.WAITING


def test_an_agent_whose_process_is_gone_is_dead(run: FabricatedRun) -> None:
    gone = dataclasses.replace(processes.this_process(), started_ticks=1)
    add_agent(run, host=gone.host, process=gone, rows_per_s=5.0)
    seen = look(run)
    assert [agent.state for agent in seen.agents] == ["dead"]
    assert seen.rows_per_s == 0.0
    assert seen.state == RunState.WAITING


def test_an_agent_whose_process_lives_here_is_what_it_says(run: FabricatedRun) -> None:
    add_agent(run, process=processes.this_process())
    assert [agent.state for agent in look(run).agents] == [AgentState.RUNNING]


def test_an_agent_of_another_host_is_what_it_says(run: FabricatedRun) -> None:
    add_agent(run, state=AgentState.LOADING, why="12 of 30 chunks")
    assert [agent.state for agent in look(run).agents] == [AgentState.LOADING]


def test_an_agent_that_only_announced_itself_is_unknown(run: FabricatedRun) -> None:
    run.store.make_folder(f"{names.AGENTS}/new")
    assert [agent.state for agent in look(run).agents] == ["unknown"]


class TornOnce(PosixStore):
    """Shows the first reads of a session half written."""

    def __init__(self, root: Path, n_torn: int) -> None:
        super().__init__(root)
        self.n_torn = n_torn

    def read(self, name: str) -> bytes:
        content = super().read(name)
        if name.endswith("/session") and self.n_torn > 0:
            self.n_torn -= 1
            return content[:50] + b"x" * (len(content) - 50)
        return content


@pytest.mark.parametrize(("n_torn", "state"), [(2, "running"), (3, "unknown")])
def test_a_torn_session_is_read_again_twice(run: FabricatedRun, n_torn: int, state: str) -> None:
    add_agent(run)
    seen = read_status(TornOnce(run.root, n_torn))
    assert [agent.state for agent in seen.agents] == [state]


def test_ledgers_of_agents_that_left_count(run: FabricatedRun) -> None:
    add_agent(run, "one", state=AgentState.LEFT, ledger=Ledger(rows_done=10, loads=1, load_s=2.0))
    add_agent(run, "two", ledger=Ledger(rows_done=5, loads=1, load_s=3.0, rows_adopted=2))
    ledger = look(run).ledger
    assert (ledger.rows_done, ledger.loads, ledger.load_s, ledger.rows_adopted) == (15, 2, 5.0, 2)


def test_a_heartbeat_that_stands_still_is_timed_on_the_watchers_own_clock(run: FabricatedRun) -> None:
    add_agent(run, counter=7)
    seen, beats = with_silences(look(run), {}, 100.0)
    assert seen.agents[0].silent_s == 0.0
    seen, beats = with_silences(look(run), beats, 112.5)
    assert seen.agents[0].silent_s == 12.5
    assert status_text.agent_rows(seen)[0][-1] == "silent for 12 s"
    add_agent(run, counter=8)
    seen, _ = with_silences(look(run), beats, 115.0)
    assert seen.agents[0].silent_s == 0.0


def test_a_watch_is_over_when_the_agents_of_a_finished_run_left_or_fell_silent(run: FabricatedRun) -> None:
    add_agent(run, "one", state=AgentState.LEFT)
    add_agent(run, "two", state=AgentState.WAITING)
    finish_all(run)
    seen, beats = with_silences(look(run), {}, 100.0)
    assert not is_over(seen)
    assert is_over(with_silences(look(run), beats, 116.0)[0])
    add_agent(run, "two", state=AgentState.LEFT)
    assert is_over(with_silences(look(run), beats, 101.0)[0])


def test_a_watch_goes_on_while_there_is_work_for_agents_that_are_silent(run: FabricatedRun) -> None:
    add_agent(run)
    _, beats = with_silences(look(run), {}, 100.0)
    assert not is_over(with_silences(look(run), beats, 1000.0)[0])


def test_only_agents_at_work_count_towards_the_rate(run: FabricatedRun) -> None:
    add_agent(run, "one", rows_per_s=3.0)
    add_agent(run, "two", rows_per_s=9.0, state=AgentState.WAITING)
    assert look(run).rows_per_s == 3.0


def test_of_very_many_agents_the_live_ones_are_shown_first(run: FabricatedRun) -> None:
    for number in range(41):
        run.store.make_folder(f"{names.AGENTS}/a{number:02d}")  # announced, never heard of again
    add_agent(run, "z")
    rows = status_text.agent_rows(look(run))
    assert (len(rows), rows[0][0]) == (40, "z")
    assert status_text.others(look(run)) == ["2 more agents: see --json"]


def test_a_silence_shorter_than_two_beats_is_not_worth_a_word(run: FabricatedRun) -> None:
    add_agent(run)
    _, beats = with_silences(look(run), {}, 100.0)
    seen, _ = with_silences(look(run), beats, 102.0)
    assert status_text.agent_rows(seen)[0][-1] == ""


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a run"):
        read_status(PosixStore(tmp_path / "nothing"))


def test_the_command_prints_text_for_people(run: FabricatedRun) -> None:
    add_agent(run, unit=3, rows_per_s=2.5, why="a [reason]\nof two lines", ledger=Ledger(infer_s=90.0))
    fail_unit(run, 1, reason="the engine died")
    printed = CliRunner().invoke(command, [str(run.root)]).output
    assert "run run: running" in printed
    assert "failed unit 1: the engine died" in printed
    assert "a [reason] of two lines" in printed
    assert "infer 90 s" in printed


def test_the_command_says_what_to_do_next(run: FabricatedRun) -> None:
    assert "fsctx submit" in CliRunner().invoke(command, [str(run.root)]).output
    finish_all(run)
    assert "fsctx collect" in CliRunner().invoke(command, [str(run.root)]).output


def test_watching_a_finished_run_ends_at_once(run: FabricatedRun) -> None:
    finish_all(run)
    printed = CliRunner().invoke(command, [str(run.root), "--watch", "--json"]).output
    assert json.loads(printed)["state"] == "done"


def test_long_reasons_are_cut_in_the_table() -> None:
    view = AgentView(agent="a", state="running", why="x" * 200)
    seen = Status(run="r", state=RunState.RUNNING, units=None, rows=None, agents=(view,))  # type: ignore[arg-type]
    assert len(status_text.agent_rows(seen)[0][-1]) <= 60


@pytest.mark.parametrize(("seconds", "said"), [(45, "45 s"), (600, "10 min"), (9000, "2.5 h"), (400_000, "4.6 days")])
def test_durations_are_said_as_people_say_them(seconds: float, said: str) -> None:
    assert status_text.duration(seconds) == said


def test_status_imports_nothing_heavy(run: FabricatedRun) -> None:
    code = (
        "import sys; from fsctx.cli.status import status; status([sys.argv[1]], standalone_mode=False);"
        "print({'pyarrow', 'torch', 'numpy', 'transformers', 'duckdb', 'sklearn', 'jinja2'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code, run.root], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"
