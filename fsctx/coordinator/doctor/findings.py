"""What a doctor found, and what follows from it. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from fsctx.protocol.facts import Facts
from fsctx.store import PublishForm


class Level(StrEnum):
    """What a finding means for a run."""

    OK = "ok"
    NOTE = "note"
    """Good to know; changes nothing."""
    MIND = "mind"
    """Safe, with something to mind."""
    BAD = "bad"
    """A run could lose or change verdicts here, or could not work at all."""


class Verdict(StrEnum):
    """Whether runs may be planned here."""

    SAFE = "safe"
    SAFE_WITH = "safe with"
    UNSAFE = "unsafe"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at."""

    check: str
    level: Level
    seen: str
    """What was found, in words."""
    why: str = ""
    """For `MIND` and `BAD`: the words that the verdict quotes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All that was found of a folder's filesystem."""

    folder: str
    host: str
    peer: str | None = None
    """The second host, if one came."""
    kind: str
    is_shared: bool
    findings: tuple[Finding, ...]
    has_symlinks: bool
    publish: PublishForm
    ttl_s: float

    @property
    def verdict(self) -> Verdict:
        """What the worst finding makes of it."""
        levels = {finding.level for finding in self.findings}
        if Level.BAD in levels:
            return Verdict.UNSAFE
        return Verdict.SAFE_WITH if Level.MIND in levels else Verdict.SAFE

    @property
    def why(self) -> tuple[str, ...]:
        """What makes it unsafe; if nothing does, what to mind."""
        wanted = Level.BAD if self.verdict is Verdict.UNSAFE else Level.MIND
        return tuple(f.why or f.seen for f in self.findings if f.level is wanted)

    @property
    def is_seen_by_one(self) -> bool:
        """Whether other hosts may see it otherwise, and none of them looked."""
        return self.is_shared and self.peer is None


def to_facts(report: Report, *, date: str, version: str) -> Facts:
    """Return what plan needs to know."""
    return Facts(
        date=date,
        version=version,
        host=report.host,
        peer=report.peer,
        kind=report.kind,
        is_safe=report.verdict is not Verdict.UNSAFE,
        why=report.why,
        has_symlinks=report.has_symlinks,
        publish=report.publish,
        ttl_s=report.ttl_s,
    )


def outweighs(standing: Facts, new: Facts) -> bool:
    """Whether facts that stand must stay: one host alone does not see what two found unsafe."""
    return not standing.is_safe and standing.peer is not None and new.peer is None and standing.kind == new.kind


def worst(findings: Iterable[Finding]) -> Level:
    """Return the worst level among findings."""
    order = list(Level)
    return max((finding.level for finding in findings), key=order.index, default=Level.OK)
