"""The watcher's screen: its numbers, and how it looks in terminals of every size."""

import fcntl
import io
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from fabricate import FabricatedRun, add_agent, fabricate, fail_unit, finish_all, finish_unit, lease_unit
from rich.console import Console

from fsctx.coordinator.live.latest import latest_events
from fsctx.coordinator.live.pace import WINDOW_S, Left, Pace
from fsctx.coordinator.live.screen import Picture, draw, left_in_words
from fsctx.coordinator.status import read_status
from fsctx.coordinator.watching import with_silences
from fsctx.protocol import names
from fsctx.protocol.agents import AgentState


@pytest.fixture
def run(tmp_path: Path) -> FabricatedRun:
    return fabricate(tmp_path / "run", n_rows=100, unit_rows=10)


def paced(*looks: tuple[float, int]) -> Pace:
    pace = Pace()
    for now_s, done in looks:
        pace.note(now_s, done)
    return pace


def test_nothing_is_said_of_the_time_left_before_something_moved() -> None:
    assert paced().left(10) is None
    assert paced((0, 5)).left(10) is None
    assert paced((0, 5), (60, 5)).left(10) is None


def test_a_steady_run_has_no_spread() -> None:
    left = paced(*((10.0 * i, 20 * i) for i in range(13))).left(100)
    assert left == Left(likely_s=50.0, least_s=50.0, most_s=50.0)


def test_an_unsteady_run_has_a_wide_spread_that_holds_the_likely_time() -> None:
    left = paced((0, 0), (10, 30), (20, 40), (30, 80), (40, 90), (50, 120), (60, 130)).left(130)
    assert left is not None
    assert left.most_s is not None
    assert left.least_s < 50 < 70 < left.most_s
    assert left.likely_s == pytest.approx(60)


def test_one_lump_of_rows_gives_no_upper_bound() -> None:
    left = paced((0, 0), (10, 0), (20, 0), (30, 0), (40, 0), (50, 0), (60, 60)).left(60)
    assert left is not None
    assert left.most_s is None
    assert left_in_words(left).endswith("or more)")


def test_what_is_long_ago_is_forgotten() -> None:
    pace = paced(*((10.0 * i, 100 * i) for i in range(100)), *((1000 + 10.0 * i, 9900 + i) for i in range(40)))
    assert pace.rows_per_s == pytest.approx(0.1)
    assert WINDOW_S == 300


def test_rows_are_left_whatever_rate_the_agents_have_at_the_moment(run: FabricatedRun) -> None:
    add_agent(run, state=AgentState.LOADING, rows_per_s=0.0)
    finish_unit(run, 0)
    lease_unit(run, 3)
    fail_unit(run, 4)
    assert read_status(run.store).rows_left == 80


def busy(run: FabricatedRun) -> Picture:
    add_agent(run, "node-17-4242-a1b2c3d4[bold]", rows_per_s=4.0, unit=3, fs_calls_per_s=1.5, why="[red]odd")
    add_agent(run, "node-18-1-x", state=AgentState.WAITING, why="nothing is free", host="host-2")
    add_agent(run, "node-19-1-x", state=AgentState.LEFT)
    finish_unit(run, 0)
    lease_unit(run, 3)
    fail_unit(run, 4)
    seen, beats = with_silences(read_status(run.store), {}, 100.0)
    seen, _ = with_silences(read_status(run.store), beats, 107.0)
    return Picture(status=seen, left=Left(likely_s=20, least_s=15, most_s=30), rows_per_s=4.2, events=["x left"])


def drawn(picture: Picture, width: int, height: int, **console: str) -> list[str]:
    encoding = console.pop("encoding", "utf-8")
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding, errors="replace")  # as the command has it
    Console(file=file, width=width, height=height).print(draw(picture, width=width, height=height))
    file.flush()
    return raw.getvalue().decode(encoding).splitlines()


def test_a_wide_screen_shows_all(run: FabricatedRun) -> None:
    text = "\n".join(drawn(busy(run), 140, 40))
    assert "1/10" in text
    assert "4.2 rows/s; 20 s left (15 s to 30 s)" in text
    assert "1.5 filesystem calls/s" in text
    assert re.search(r"node-17-4242-a1b2c3d4\[bold\] +running +4.0 +7 s ago +NVIDIA A10 +3", text)
    assert "[red]odd" in text
    assert "nothing is free" in text
    assert "failed unit 4: the engine died" in text
    assert "x left" in text
    assert "1 left" in text


@pytest.mark.parametrize("size", [(40, 24), (60, 20), (79, 12), (20, 10), (8, 12)])
def test_no_line_is_wider_than_the_terminal_and_there_are_not_more_than_it_has(
    run: FabricatedRun, size: tuple[int, int]
) -> None:
    lines = drawn(busy(run), *size)
    assert max(map(len, lines)) <= size[0]
    assert len(lines) <= size[1]
    assert "run" in lines[0]


def test_what_engines_said_moves_no_cursor_and_takes_one_line(run: FabricatedRun) -> None:
    add_agent(run, why="a\nb\x1b[2J")
    fail_unit(run, 4, reason="first\nsecond\x1b[2J")
    picture = Picture(status=read_status(run.store), left=None, rows_per_s=None)
    text = "\n".join(drawn(picture, 140, 24))
    assert "failed unit 4: first second\\x1b[2J" in text
    assert "a b\\x1b[2J" in text
    assert "\x1b" not in text


def test_at_40_columns_agents_still_have_their_state_and_rate(run: FabricatedRun) -> None:
    text = "\n".join(drawn(busy(run), 40, 24))
    assert re.search(r"node-17\S* +running +4\.0", text)


def test_a_crowd_is_cut_to_the_terminals_height(run: FabricatedRun) -> None:
    for number in range(100):
        add_agent(run, f"agent-{number:03d}")
    picture = Picture(status=read_status(run.store), left=None, rows_per_s=None)
    lines = drawn(picture, 100, 24)
    assert len(lines) <= 24
    assert re.search(r"\d+ more", "\n".join(lines))


def test_it_is_drawn_in_ascii_where_the_locale_has_no_more(run: FabricatedRun) -> None:
    assert any("running" in line for line in drawn(busy(run), 100, 24, encoding="ascii"))


def test_the_latest_events_are_those_of_agents_that_live_and_not_the_usual_ones(run: FabricatedRun) -> None:
    add_agent(run, "agent-1")
    add_agent(run, "agent-2", state=AgentState.LEFT)
    for agent in ("agent-1", "agent-2"):
        for kind in ("started", "inferred", "saved"):
            run.store.append(names.events(agent), b'{"time":"2026-11-30T10:00:00","event":"%s"}\n' % kind.encode())
    assert [line.split() for line in latest_events(run.store, read_status(run.store))] == [
        ["10:00:00", "agent-1", "started"],
        ["10:00:00", "agent-1", "saved"],
    ]


@dataclass
class Terminal:
    """A program in a pseudo terminal, and all that it wrote."""

    process: "subprocess.Popen[bytes]"
    master: int
    written: str = ""

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.process.send_signal(signal.SIGWINCH)

    def read_until(self, pattern: str) -> str:
        """Read on until what is written since the last call has a pattern; an ended program has written all."""
        new = ""
        while not re.search(pattern, new):
            try:
                new += os.read(self.master, 65536).decode(errors="replace")
            except OSError:
                break
        assert re.search(pattern, new), new[-3000:]
        self.written += new
        return new


@contextmanager
def terminal(run: FabricatedRun, columns: int, lines: int, **environ: str) -> Iterator[Terminal]:
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    plain = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    process = subprocess.Popen(
        [sys.executable, "-m", "fsctx", "status", str(run.root), "--watch"],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={**plain, "TERM": "xterm-256color", **environ},
    )
    os.close(slave)
    try:
        yield Terminal(process, master)
    finally:
        process.kill()
        process.wait()
        os.close(master)


NARROW = r"of 100 rows(?!;)"
"""What has a line of its own on a narrow screen alone."""


def bar_length(text: str) -> int:
    """How long the last bar of units is."""
    return len(re.findall(r"units (?:\x1b\[[\d;]*m)*([━╸╺\x1b\[\d;m]+)", text)[-1].replace("\x1b", ""))


def test_in_a_terminal_the_screen_follows_its_size_and_what_stands_at_the_end_stays(run: FabricatedRun) -> None:
    add_agent(run, rows_per_s=4.0)
    finish_unit(run, 0)
    with terminal(run, 120, 30) as shown:
        wide = shown.read_until(r"agent-1 [^\n]*NVIDIA A10")
        shown.resize(40, 24)
        narrow = shown.read_until(rf"{NARROW}(?s:.*)agent-1 [^\n]*4\.0")  # what comes first may be as wide as before
        assert bar_length(narrow) < bar_length(wide)
        assert "NVIDIA" not in re.split(NARROW, narrow, maxsplit=1)[1]
        finish_all(run, but=[0])
        add_agent(run, state=AgentState.LEFT, counter=2)
        end = shown.read_until(r"next   collect the verdicts")
        assert "\x1b[?1049l" in end  # the other screen was left first
        assert shown.process.wait(timeout=30) == 0


def test_without_colour_the_screen_has_none(run: FabricatedRun) -> None:
    add_agent(run)
    with terminal(run, 80, 24, NO_COLOR="1") as shown:
        text = shown.read_until(r"agent-1")
        assert not re.search(r"\x1b\[(?:\d;)*3[\d;]+m", text)


def test_a_locale_without_utf_8_is_no_reason_to_fail(run: FabricatedRun) -> None:
    add_agent(run, device="Gerät … ✓", state=AgentState.LEFT)
    finish_all(run)
    with terminal(run, 80, 24, LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0") as shown:
        shown.read_until(r"next   collect")
        assert shown.process.wait(timeout=30) == 0
    assert "Traceback" not in shown.written


def test_ctrl_c_gives_the_terminal_back(run: FabricatedRun) -> None:
    add_agent(run)
    with terminal(run, 80, 24) as shown:
        shown.read_until(r"agent-1")
        shown.process.send_signal(signal.SIGINT)
        end = shown.read_until(r"interrupted")
        assert "\x1b[?1049l" in end
        assert shown.process.wait(timeout=30) == 130


def test_where_there_is_no_terminal_watching_writes_plain_lines(run: FabricatedRun) -> None:
    add_agent(run, state=AgentState.LEFT)
    finish_all(run)
    done = subprocess.run(
        [sys.executable, "-m", "fsctx", "status", str(run.root), "--watch"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0
    assert "\x1b" not in done.stdout
    assert "100 of 100 done" in done.stdout
