"""A report in words, and as a document."""

from typing import Any

from fsctx.coordinator.doctor.findings import Report, Verdict
from fsctx.protocol.facts import Facts

COLUMNS = ("what", "", "seen")


def rows(report: Report) -> list[tuple[str, str, str]]:
    """Return the table of what was found."""
    return [(f.check, str(f.level), f.seen) for f in report.findings]


def table(report: Report) -> list[str]:
    """Return the table as lines, aligned by spaces."""
    lines = rows(report)
    widths = [max(len(line[i]) for line in lines) for i in range(2)]
    return [f"{check.ljust(widths[0])}  {level.ljust(widths[1])}  {seen}" for check, level, seen in lines]


def verdict(report: Report) -> str:
    """Return the verdict in one line."""
    match report.verdict:
        case Verdict.UNSAFE:
            return f"unsafe: {'; '.join(report.why)}"
        case Verdict.SAFE_WITH:
            words = f"safe with {'; '.join(report.why)}"
        case Verdict.SAFE:
            words = "safe"
    return f"{words} (as far as one host can tell)" if report.is_seen_by_one else words


def closing(report: Report) -> list[str]:
    """Return the lines under the table."""
    lines = [f"verdict: {verdict(report)}"]
    if report.verdict is not Verdict.UNSAFE:
        lines.append(f"a silent agent is given up after {report.ttl_s:g} s (--ttl); results are published by")
        lines[-1] += f" {report.publish}. fsctx plan goes by that below {report.folder}"
    if report.is_seen_by_one:
        lines.append(
            f"next: fsctx doctor {report.folder} --wait 300 here, and with --peer on another host that mounts it"
        )
    return lines


def kept(facts: Facts) -> str:
    """Return the line that tells why facts of two hosts were not replaced."""
    return (
        f"note: the facts of {facts.date[:10]} stay, since two hosts ({facts.host}, {facts.peer}) "
        f"found it unsafe ({'; '.join(facts.why)}): look with two hosts again, or remove the facts file"
    )


def to_json(report: Report) -> dict[str, Any]:
    """Return the document that `--json` prints."""
    return {
        "folder": report.folder,
        "host": report.host,
        "peer": report.peer,
        "verdict": str(report.verdict),
        "why": list(report.why),
        "kind": report.kind,
        "is_shared": report.is_shared,
        "ttl_s": report.ttl_s,
        "has_symlinks": report.has_symlinks,
        "publish": report.publish,
        "checks": [{"check": f.check, "level": str(f.level), "seen": f.seen} for f in report.findings],
    }
