"""What the demo shows while it goes on: a bar on a terminal, else a line every few seconds."""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from fsctx.coordinator.progress import DEAD, AgentView, Status
from fsctx.protocol.agents import AgentState

LINE_S = 4.0
"""A line at most every so many seconds, where nothing happens."""

_DOING = {
    AgentState.STARTING: "starting",
    AgentState.FETCHING: "fetching the model",
    AgentState.LOADING: "loading the model",
    AgentState.WAITING: "waiting",
    AgentState.LEAVING: "leaving",
    AgentState.LEFT: "left",
    DEAD: "killed",
}


class Screen(Protocol):
    """Shows how the demo goes on."""

    def say(self, line: str) -> None:
        """Show a line that stays."""

    def show(self, status: Status) -> None:
        """Show how far the run is."""


def doing(agent: AgentView) -> str:
    """Return what an agent does, in some words."""
    if agent.state == AgentState.RUNNING:
        return f"{agent.rows_per_s:.1f} claims/s" if agent.rows_per_s else "computing"
    return _DOING.get(agent.state, agent.state)


def agents_line(status: Status) -> str:
    """Return what all agents do, in one line."""
    return "; ".join(f"{agent.agent} {doing(agent)}" for agent in status.agents) or "agents are starting"


class Lines:
    """A `Screen` for a log."""

    def __init__(self, console: Console, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._began_s = clock()
        self._shown = ""
        self._shown_s = float("-inf")

    def say(self, line: str) -> None:
        """See `Screen.say`."""
        self._print(f"{self._clock() - self._began_s:5.0f} s  {line}")

    def show(self, status: Status) -> None:
        """See `Screen.show`: when time has passed and something changed."""
        text = f"{status.rows.done:,} of {status.rows.total:,} claims; {agents_line(status)}"
        if text != self._shown and self._clock() - self._shown_s >= LINE_S:
            self._shown, self._shown_s = text, self._clock()
            self.say(text)

    def _print(self, line: str) -> None:
        self._console.print(Text(line), soft_wrap=True)


class Bar:
    """A `Screen` for a terminal."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task = progress.add_task("", total=None, agents="")

    def say(self, line: str) -> None:
        """See `Screen.say`."""
        self._progress.console.print(Text(line), soft_wrap=True)

    def show(self, status: Status) -> None:
        """See `Screen.show`."""
        rows = status.rows
        self._progress.update(self._task, completed=rows.done, total=rows.total, agents=agents_line(status))


@contextlib.contextmanager
def screen_on(console: Console) -> Iterator[Screen]:
    """Give what suits a console."""
    if not console.is_terminal:
        yield Lines(console)
        return
    columns = (
        MofNCompleteColumn(),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[agents]}", markup=False),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        yield Bar(progress)
