"""What commands show on terminals of every kind: bars where one looks, nothing more where another program reads."""

import contextlib
import fcntl
import io
import json
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from fabricate import FabricatedRun, add_agent, fabricate, fail_unit, finish_all, finish_unit

from fsctx.cli.characters import never_fail_for_a_character
from fsctx.coordinator.environment import pack
from fsctx.coordinator.plan.draft import MAX_NAMES, check_options
from fsctx.coordinator.plan.request import PlanRequest
from fsctx.errors import InputError
from fsctx.protocol import names

OLD_LOCALE = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


@pytest.fixture
def run(tmp_path: Path) -> FabricatedRun:
    return fabricate(tmp_path / "run", n_rows=40, unit_rows=10, labels=("[red]SUPPORTED[/red]", "REFUTED", "NEI"))


def read_all(master: int) -> str:
    """Read a terminal to its end."""
    text = b""
    with contextlib.suppress(OSError):  # how Linux says that nobody has the other end any more
        while piece := os.read(master, 65536):
            text += piece
    return text.decode(errors="replace")


def on_terminal(*words: object, columns: int = 80, **environ: str) -> tuple[int, str, str]:
    """Call fsctx with a terminal for its messages and a pipe for its output; return its exit code and both."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "fsctx", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=slave,
        text=True,
        env={**os.environ, "TERM": "xterm-256color", **environ},
    )
    os.close(slave)
    shown = read_all(master)
    os.close(master)
    output, _ = process.communicate()
    return process.returncode, output, shown


def screen(*words: object, columns: int = 80) -> str:
    """Call fsctx on a terminal alone, and return what is written there."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environ = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    command = [sys.executable, "-m", "fsctx", *map(str, words)]
    subprocess.run(command, stdin=slave, stdout=slave, stderr=slave, env={**environ, "TERM": "xterm"}, check=True)
    os.close(slave)
    shown = read_all(master)
    os.close(master)
    return shown


def call(*words: object, **environ: str) -> "subprocess.CompletedProcess[str]":
    """Call fsctx without a terminal."""
    return subprocess.run(
        [sys.executable, "-m", "fsctx", *map(str, words)],
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        env={**os.environ, **environ},
        check=False,
    )


def test_plan_shows_bars_on_a_terminal(tmp_path: Path) -> None:
    (tmp_path / "claims.txt").write_text("One claim.\n")
    code, output, shown = on_terminal("plan", tmp_path / "claims.txt", "--run", tmp_path / "run", "--model", "fake")
    assert code == 0
    assert "writing claims" in shown
    assert "\x1b" not in output


def test_collect_shows_a_bar_on_a_terminal_and_none_with_json(run: FabricatedRun) -> None:
    finish_all(run)
    assert "collecting" in on_terminal("collect", run.root)[2]
    assert on_terminal("collect", run.root, "--json")[2] == ""


def test_packing_tells_how_many_files_are_packed() -> None:
    seen: list[tuple[int, int]] = []
    told = pack._Told(["a", "b"], lambda done, total: seen.append((done, total)))
    assert (list(told), seen) == (["a", "b"], [(0, 2), (1, 2), (2, 2)])


@pytest.mark.parametrize("columns", [20, 40, 200])
def test_tables_are_not_wider_than_the_terminal(run: FabricatedRun, columns: int) -> None:
    finish_all(run)
    done = call("collect", run.root, COLUMNS=str(columns))
    assert done.returncode == 0
    assert "40 rows, each once" in " ".join(done.stdout.split())


def test_a_dumb_terminal_is_told_look_by_look(run: FabricatedRun) -> None:
    finish_all(run)
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "fsctx", "status", str(run.root), "--watch"]
    done = subprocess.run(command, stdout=slave, env={**os.environ, "TERM": "dumb"}, check=False)
    os.close(slave)
    shown = read_all(master)
    os.close(master)
    assert (done.returncode, "40 of 40 done" in shown) == (0, True)


def test_a_status_shows_the_columns_that_the_terminal_has_room_for_and_agents_names_whole(run: FabricatedRun) -> None:
    add_agent(run, "node-17-4242-a1b2c3d4", rows_per_s=14.2, unit=3, why="others hold the last units, and they beat")
    columns = {}
    for width in (40, 80, 160):
        shown = screen("status", run.root, columns=width)
        lines = re.sub(r"\x1b\[[\d;]*m", "", shown).splitlines()
        head, line = (next(one for one in lines if one.startswith(name)) for name in ("agent ", "node-17"))
        columns[width] = head.split()
        assert line.split()[:1] == ["node-17-4242-a1b2c3d4"]
        assert "14.2" in line
        assert "…" not in shown
    assert columns[40] == ["agent", "state", "rows/s"]
    assert columns[80] == ["agent", "state", "rows/s", "rows", "note"]
    assert len(columns[160]) == 9


def test_without_colour_nothing_is_coloured_on_a_terminal(run: FabricatedRun) -> None:
    finish_all(run)
    coloured = r"\x1b\[(?:\d;)*3[\d;]+m"
    assert re.search(coloured, on_terminal("collect", run.root, NO_COLOR="")[2])
    assert not re.search(coloured, on_terminal("collect", run.root, NO_COLOR="1")[2])


def test_markup_in_labels_is_text(run: FabricatedRun, tmp_path: Path) -> None:
    finish_all(run)
    assert "[red]SUPPORTED[/red]" in call("collect", run.root, COLUMNS="200").stdout
    call("report", run.root, "-o", tmp_path / "page.html")
    assert "[red]SUPPORTED[/red]" in (tmp_path / "page.html").read_text()


def test_what_others_wrote_moves_no_cursor(run: FabricatedRun) -> None:
    evil = "\x1b[2J\x1b]0;title\x07"
    finish_unit(run, 0, changed={1: {"verdict": None, "status": "error", "error": f"reason{evil}"}})
    fail_unit(run, 1, reason=f"died{evil}")
    add_agent(run, "agent-1", device=f"Titan{evil}", why=f"it is tired{evil}")
    for words in (("status", run.root), ("collect", run.root, "--partial")):
        said = call(*words).stdout
        assert "\x1b" not in said
        assert r"\x1b[2J" in said
        shown = screen(*words)
        assert "\x1b[2J" not in shown
        assert "\x1b]0" not in shown


def test_a_plan_is_told_in_an_old_locale_and_its_json_is_utf_8_in_any(tmp_path: Path) -> None:
    (tmp_path / "claims.jsonl").write_text('{"claim": "a", "label": "REFUTES"}\n{"claim": "b", "label": "größe"}\n')
    words = ("plan", tmp_path / "claims.jsonl", "--run", tmp_path / "run", "--model", "fake")
    done = call(*words, PYTHONIOENCODING="latin-1")
    assert (done.returncode, done.stderr) == (0, "")
    assert "REFUTES ? REFUTED: 1 rows" in done.stdout
    shutil.rmtree(tmp_path / "run")
    again = [sys.executable, "-m", "fsctx", *map(str, words), "--json"]
    told = subprocess.run(again, env={**os.environ, "PYTHONIOENCODING": "latin-1"}, stdout=subprocess.PIPE, check=True)
    assert {label["label"] for label in json.loads(told.stdout)["labels"]} == {"REFUTES", "größe"}


def test_the_bytes_of_a_file_name_are_written_as_they_are() -> None:
    output = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="strict")
    never_fail_for_a_character(output)
    output.write("a\udcff → b")
    output.flush()
    assert output.buffer.getvalue() == b"a\xff ? b"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "words", [("status",), ("collect",), ("logs",), ("report", "-o", "page.html"), ("collect", "-o", "out.csv")]
)
def test_in_an_old_locale_commands_work(run: FabricatedRun, tmp_path: Path, words: tuple[str, ...]) -> None:
    add_agent(run, device="Gerät")
    run.store.append(names.events("agent-1"), '{"event": "store_error", "error": "Gerät …"}\n'.encode())
    finish_all(run)
    name, *options = (tmp_path / word if "." in word else word for word in words)
    done = call(name, run.root, *options, **OLD_LOCALE)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False)


def test_a_page_of_a_run_that_nobody_worked_on_and_of_one_with_errors_alone(tmp_path: Path) -> None:
    run = fabricate(tmp_path / "run", n_rows=4)
    assert call("report", run.root, "-o", tmp_path / "empty.html").stdout.endswith("0 verdicts, 4 missing\n")
    finish_unit(run, 0, changed={row: {"verdict": None, "status": "error", "error": "no"} for row in range(4)})
    assert call("report", run.root, "-o", tmp_path / "errors.html").stdout.endswith("4 verdicts, 0 missing\n")


def test_more_templates_than_a_run_has_room_for_are_refused_before_anything_is_read(tmp_path: Path) -> None:
    many = tuple(f"none-{number}.toml" for number in range(100_000))
    request = PlanRequest(run=tmp_path / "run", inputs=("claims.txt",), models=("fake",), templates=many)
    with pytest.raises(InputError, match=r"--template is there 100,000 times; a run has room for 4,096 .*several runs"):
        check_options(request)
    check_options(PlanRequest(run=tmp_path, inputs=("c",), models=("fake",), templates=many[:MAX_NAMES] * 2))
