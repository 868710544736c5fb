"""A DAG for HTCondor's DAGMan: plan, pilots for as long as work is left, collect."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fsctx.coordinator.submit.texts import Templates
from fsctx.errors import InputError

_DAG, _NODE = "dag.dag.j2", "dag_node.sub.j2"


@dataclass(frozen=True, slots=True, kw_only=True)
class DagRequest:
    """What the DAG does. Each of the three is the words of a call of fsctx."""

    name: str
    folder: Path
    """Where its files are to be; absolute."""
    called_in: Path
    """Where relative paths begin, as they do for who calls `fsctx submit`."""
    python: str
    plan: tuple[str, ...]
    """Empty: the run stands already."""
    pilots: tuple[str, ...]
    collect: tuple[str, ...]
    environment: Mapping[str, str]


def render_dag(request: DagRequest, templates: Templates) -> dict[str, str]:
    """Return the files of a DAG, by name.

    Raises:
        InputError: DAGMan cannot read the folder's name.
    """
    if re.search(r"[\s\"]", str(request.folder)):
        raise InputError(f"--dag {request.folder}: DAGMan takes no spaces or quotes in paths: pass another folder")
    nodes = {"plan": request.plan, "pilots": request.pilots, "collect": request.collect}
    used = {node: words for node, words in nodes.items() if words}
    files = {f"{node}.sub": _node(request, node, words, templates) for node, words in used.items()}
    facts = {"nodes": tuple(used), "folder": str(request.folder)}
    return {f"{request.name}.dag": templates.render(_DAG, facts, {}), **files}


def write_dag(folder: Path, files: Mapping[str, str]) -> Path:
    """Write a DAG's files into its folder and return the DAG's.

    Raises:
        InputError: the folder cannot be written, or has one of the files.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        taken = [name for name in files if (folder / name).exists()]
        if taken:
            raise InputError(f"--dag {folder}: {taken[0]} is there already: pass a new folder")
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"--dag {folder} cannot be written ({error.strerror}): pass another folder") from None
    return folder / next(iter(files))


def _node(request: DagRequest, node: str, words: Sequence[str], templates: Templates) -> str:
    facts = {
        "node": node,
        "folder": str(request.folder),
        "called_in": str(request.called_in),
        "python": request.python,
        "words": tuple(words),
        "environment": tuple(f"{key}={value}" for key, value in request.environment.items()),
    }
    return templates.render(_NODE, facts, {})
