"""The watcher's screen, for any size of terminal. Pure: a picture in, something that rich can draw out."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from fsctx.coordinator import status_text
from fsctx.coordinator.live.pace import Left
from fsctx.coordinator.printing import printable
from fsctx.coordinator.progress import AgentView, Status
from fsctx.coordinator.sweeps import sweep_state
from fsctx.protocol.agents import AgentState

_WIDE_ENOUGH = {"state": 0, "rows/s": 0, "beat": 48, "device": 64, "unit": 76, "model": 96, "from": 120, "note": 60}
"""A column is shown on terminals of so many columns and more; the agent's name always is."""

_MAX_NAME = 28


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """What there is to see at one look."""

    status: Status
    left: Left | None
    rows_per_s: float | None
    """As this watcher saw verdicts come, while `status.rows_per_s` is what agents say of themselves."""
    events: Sequence[str] = ()
    """The latest events, in words, oldest first."""


def draw(picture: Picture, *, width: int, height: int) -> RenderableType:
    """Return the screen: nothing in it is wider or, where there is room for a few lines at all, higher than that."""
    head = [*_head(picture, width), *(_line(line) for line in status_text.waiting(picture.status))]
    events = picture.events[-max(0, min(6, height - len(head) - 8)) :] if height - len(head) > 8 else ()
    room = height - len(head) - len(events) - 4
    agents = [_agents(picture.status, width, room)] if room > 0 and picture.status.agents else []
    return Group(*head, *agents, *(_line(event, style="dim") for event in events))


def _head(picture: Picture, width: int) -> list[RenderableType]:
    status, units = picture.status, picture.status.units
    bar = Table.grid(padding=(0, 1))
    total = units.total - units.dropped
    done = f"{units.done:,}/{total:,}"
    length = max(4, width - len(done) - 8)
    bar.add_row("units", ProgressBar(total=max(1, total), completed=units.done, width=length), done)
    rows = f"{status.rows.done:,} of {status.rows.total - status.rows.dropped:,} rows"
    counts = f"{units.leased:,} leased, {units.free:,} free, {units.failed:,} failed"
    return [
        _line(f"run {status.run}: {status.state}", style="bold"),
        bar,
        *(_line(part) for part in ((f"{rows}; {counts}",) if width >= 80 else (rows, counts))),
        *([_line(sweep_state(status.sweep))] if status.sweep else []),
        _line(_speed(picture)),
        _line(f"{status.fs_calls_per_s:,.1f} filesystem calls/s"),
    ]


def _speed(picture: Picture) -> str:
    status = picture.status
    if picture.left is not None:
        at_most = "at most " if status.sweep and status.sweep.is_open else ""
        return f"{picture.rows_per_s or 0.0:,.1f} rows/s; {at_most}{left_in_words(picture.left)}"
    return f"{status.rows_per_s:,.1f} rows/s{status_text.eta(status)}"


def left_in_words(left: Left) -> str:
    """Return how long it takes, with its spread."""
    least, most = status_text.duration(left.least_s), left.most_s
    spread = f"{least} or more" if most is None else f"{least} to {status_text.duration(most)}"
    return f"{status_text.duration(left.likely_s)} left ({spread})"


def _agents(status: Status, width: int, room: int) -> Table:
    name_width = max(6, min(_MAX_NAME, width - 20))  # state and rate need about so much
    shown = [name for name, least in _WIDE_ENOUGH.items() if width >= least]
    table = Table(box=box.SIMPLE, padding=(0, 2, 0, 0), show_edge=False, pad_edge=False)
    for name in ("agent", *shown):
        table.add_column(name, no_wrap=True, overflow="ellipsis", max_width=name_width if name == "agent" else None)
    present = sorted((a for a in status.agents if a.state != AgentState.LEFT), key=lambda agent: not agent.is_alive)
    for agent in present[:room]:
        cells = _cells(agent)
        table.add_row(_line(agent.agent), *(_line(cells[name]) for name in shown))  # a Text: brackets are no markup
    n_more = len(present) - room
    n_left = len(status.agents) - len(present)
    more = [f"{n_more:,} more"] * (n_more > 0) + [f"{n_left:,} left"] * (n_left > 0)
    table.caption = Text(", ".join(more)) if more else None
    return table


def _cells(agent: AgentView) -> dict[str, str]:
    return {
        "state": str(agent.state),
        "rows/s": f"{agent.rows_per_s:.1f}",
        "beat": "" if agent.silent_s is None else f"{status_text.duration(agent.silent_s)} ago",
        "device": agent.device or "?",
        "unit": "" if agent.unit is None else str(agent.unit),
        "model": agent.model or "",
        "from": agent.source or "",
        "note": agent.why,
    }


def _line(text: str, *, style: str = "") -> Text:
    """Return one line of a text: failures tell what engines said, in whatever form."""
    return Text(printable(" ".join(text.split())), style=style, no_wrap=True, overflow="ellipsis")
