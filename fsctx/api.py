"""The command line as Python: the functions that the commands call, each imported when it is needed."""

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from fsctx.errors import InputError
from fsctx.store import PosixStore

if TYPE_CHECKING:
    import pyarrow as pa

    from fsctx.agent.audit import Audit
    from fsctx.coordinator.collect.collect import Summary
    from fsctx.coordinator.collect.writers import FileFormat
    from fsctx.coordinator.plan import PlanReport, Progress
    from fsctx.coordinator.progress import Status
    from fsctx.coordinator.retry import PutBack
    from fsctx.coordinator.stop import Told
    from fsctx.coordinator.submit.record import Submission
    from fsctx.protocol.manifest import Method

PathLike = str | os.PathLike[str]


def plan(  # noqa: PLR0913 - as many options as the command has
    inputs: PathLike | Sequence[PathLike],
    *,
    run: PathLike,
    model: PathLike | Sequence[PathLike] = (),
    base: PathLike | None = None,
    template: PathLike | Sequence[PathLike] = (),
    app: str | None = None,
    method: "Method" = "score",
    id_column: str | None = None,
    claim_column: str | None = None,
    label_column: str | None = None,
    gold: Mapping[str, str] | None = None,
    unit_rows: int | None = None,
    ttl_s: float | None = None,
    sweep: Literal["halving"] | None = None,
    budget: int | None = None,
    has_header: bool | None = None,
    is_quoted: bool | None = None,
    only_used_columns: bool = False,
    progress: "Progress | None" = None,
) -> "Run":
    """Plan a run as `fsctx plan` does. `base`: what adapters among the models are for; `gold`: gold label → label.

    Raises:
        InputError, NoSpace: something cannot be used, or disk or quota is full; nothing was written.
    """
    from fsctx.coordinator import plan as planning

    request = planning.PlanRequest(
        inputs=_several(inputs),
        run=Path(run),
        models=_several(model),
        base=None if base is None else os.fspath(base),
        templates=_several(template),
        app=app,
        method=method,
        id_column=id_column,
        claim_column=claim_column,
        label_column=label_column,
        gold=dict(gold or {}),
        unit_rows=unit_rows,
        ttl_s=ttl_s,
        sweep=sweep,
        budget=budget,
        has_header=has_header,
        is_quoted=is_quoted,
        is_lean=only_used_columns,
    )
    return Run(run, planned=planning.plan(request, progress=progress or _ignore))


class Run:
    """A run folder. Keeps nothing in memory: every call looks at the files, as every command does.

    Raises:
        InputError: the folder is not a run.
        Damaged: run.json cannot be read.
    """

    def __init__(self, path: PathLike, *, planned: "PlanReport | None" = None) -> None:
        from fsctx.protocol.manifest import read_manifest

        self.path = Path(path).absolute()
        self.planned = planned
        """What the plan came to, where `fsctx.plan` returned this."""
        self._store = PosixStore(self.path)
        self.name = read_manifest(self._store).run

    def __repr__(self) -> str:
        return f"fsctx.Run({str(self.path)!r})"

    def status(self) -> "Status":
        """Look how far it is and who works, as `fsctx status`; batch systems are asked where they answer."""
        import dataclasses

        from fsctx.coordinator.pilots import look_at_pilots
        from fsctx.coordinator.status import read_status
        from fsctx.coordinator.submit.submit import batch_system

        seen = read_status(self._store)
        return dataclasses.replace(seen, pilots=look_at_pilots(self._store, batch_system))

    def wait(self, *, timeout_s: float | None = None, every_s: float = 2.0) -> "Status":
        """Look again and again until the run is over and its agents left, or time is up; return the last status."""
        from fsctx.coordinator.status import read_status
        from fsctx.coordinator.watching import Beat, is_over, with_silences

        began_s = time.monotonic()
        beats: dict[str, Beat] = {}
        while True:
            seen, beats = with_silences(read_status(self._store), beats, time.monotonic())
            left_s = float("inf") if timeout_s is None else began_s + timeout_s - time.monotonic()
            if is_over(seen) or left_s <= 0:
                return seen
            time.sleep(min(every_s, left_s))

    def submit(  # noqa: PLR0913 - as many options as the command has
        self,
        batch: str,
        n: int,
        *,
        settings: Mapping[str, str] | None = None,
        agent_options: Iterable[str] = (),
        environment: str | None = None,
        template_dir: PathLike | None = None,
        force: bool = False,
    ) -> "Submission":
        """Start n pilots as `fsctx submit --batch BATCH -n N` does, and return their record.

        Raises:
            InputError: the batch system or an option cannot be used, or pilots would never start; nothing was queued.
        """
        from fsctx.coordinator.submit import starting
        from fsctx.coordinator.submit.submit import batch_system
        from fsctx.coordinator.submit.texts import Templates

        options = tuple(agent_options)
        system = batch_system(batch, Templates(folder=None if template_dir is None else Path(template_dir)))
        asked = starting.Asked(
            n=n,
            agent_options=options,
            on_gpu=_device_of(self.path, options) != "cpu",
            environment=environment,
            settings=settings or {},
            is_forced=force,
        )
        return starting.start(self._store, system, asked).submission

    def stop(self, *, drain: bool = False) -> "Told":
        """Tell agents to leave, as `fsctx stop`; with `drain`, when they have finished what they hold."""
        from fsctx.coordinator.pilots import remove_waiting
        from fsctx.coordinator.stop import stop
        from fsctx.coordinator.submit.submit import batch_system

        told = stop(self._store, "drain" if drain else "stop")
        remove_waiting(self._store, batch_system)
        return told

    def retry(self, units: Iterable[int] = ()) -> "PutBack":
        """Put units back that were given up, as `fsctx retry`: those named, or all.

        Raises:
            InputError: there is no such unit.
        """
        import secrets

        from fsctx.coordinator.retry import retry

        return retry(self._store, units, token=secrets.token_hex(8))

    def collect(
        self,
        output: PathLike | None = None,
        *,
        form: "FileFormat" = "rows",
        partial: bool = False,
        keep_columns: bool = False,
    ) -> "pa.Table":
        """Prove, and return one row per claim and task in input order, as `fsctx collect`; also into a file if named.

        `form`: whether the file holds rows or the answers of an OpenAI batch.

        `.to_pandas()` and `polars.from_arrow` take it from there. The schema's metadata hold the manifest.

        Raises:
            NotComplete: verdicts are missing, and `partial` was not asked for; no file was written.
            Damaged: a file of the run is not what was written there; no file was written.
        """
        import pyarrow as pa

        from fsctx.coordinator.collect.collect import Request, collect
        from fsctx.coordinator.collect.writers import METADATA_KEY
        from fsctx.protocol import names

        tables: list[pa.Table] = []
        file = None if output is None else Path(output)
        request = Request(output=file, form=form, is_partial=partial, keep_columns=keep_columns)
        collect(self._store, request, take=tables.append)
        manifest = {METADATA_KEY: self._store.read(names.MANIFEST)}
        return pa.concat_tables(tables).replace_schema_metadata(manifest)

    def statistics(self, *, partial: bool = False) -> "Summary":
        """Return what `fsctx collect --json` prints: counts, accuracy and intervals, comparisons, failures.

        Raises:
            NotComplete, Damaged: see `collect`.
        """
        from fsctx.coordinator.collect.collect import Request, collect

        return collect(self._store, Request(is_partial=partial))

    def report(self, output: PathLike) -> "Summary":
        """Write the page that `fsctx report` writes, of what is there so far, and return its statistics.

        Raises:
            InputError: no page can be written there.
        """
        from fsctx.coordinator.report.page import report_so_far

        return report_so_far(self._store, Path(output))

    def audit(  # noqa: PLR0913 - as many options as the command has
        self,
        *,
        share: float | None = 0.01,
        rows: int | None = None,
        seed: int = 0,
        tolerance: float = 0.25,
        engine: str = "auto",
        device: str = "auto",
        dtype: str | None = None,
        cache: PathLike | None = None,
    ) -> "Audit":
        """Compute a sample of published verdicts again, here, as `fsctx audit` does: a share of them, or some `rows`.

        Raises:
            NotComplete: nothing is published yet.
            InputError: a sample of nothing was asked for, or there is no such engine or device.
        """
        from fsctx.agent.audit import Sample, audit
        from fsctx.agent.options import AgentOptions
        from fsctx.cache import default_root

        if not (0 < share <= 1 if rows is None and share is not None else (rows or 0) > 0):
            raise InputError(f"share {share}, rows {rows}: pass a share from 0 to 1, or a number of rows")
        folder = default_root(os.environ, None if cache is None else Path(cache))
        options = AgentOptions(cache=folder, engine=engine, device=device, dtype=dtype)
        sample = Sample(share=share if rows is None else None, n_rows=rows or 0, seed=seed)
        return audit(self.path, options, sample, tolerance=tolerance, say=lambda _: None)


def _device_of(run: Path, agent_options: tuple[str, ...]) -> str:
    import click

    from fsctx.cli.agent import device_of

    try:
        return device_of(run, agent_options)
    except click.ClickException as error:
        raise InputError(f"agent_options: {error.format_message()}") from None


def _several(given: PathLike | Sequence[PathLike]) -> tuple[str, ...]:
    return (os.fspath(given),) if isinstance(given, str | os.PathLike) else tuple(os.fspath(one) for one in given)


def _ignore(step: str, done: int, total: int | None) -> None:
    """Show no progress."""
