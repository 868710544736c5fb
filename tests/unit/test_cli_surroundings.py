"""The command line where its surroundings are odd: streams that are closed or full, locales, folders of others."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from fabricate import FabricatedRun, fabricate

from fsctx.cache import NodeCache
from fsctx.protocol import names


@pytest.fixture
def run(tmp_path: Path) -> FabricatedRun:
    return fabricate(tmp_path / "my run", n_rows=10)


def shell(command: str, *words: object, **environ: str) -> "subprocess.CompletedProcess[str]":
    """Run a shell's command in which `$fsctx` is ours and `$1` and so on are `words`."""
    script = f'fsctx() {{ "{sys.executable}" -m fsctx "$@"; }}; {command}'
    return subprocess.run(
        ["/bin/sh", "-c", script, "sh", *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environ},
    )


def test_with_standard_output_closed_the_work_is_done_all_the_same(run: FabricatedRun) -> None:
    done = shell('fsctx status "$1" >&-', run.root)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_output_that_is_full_is_told_in_one_line(run: FabricatedRun) -> None:
    done = shell('fsctx status "$1" > /dev/full', run.root)
    assert (done.returncode, done.stderr) == (1, "fsctx: output: No space left on device\n")


def test_a_name_that_the_locale_cannot_read_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "claims.txt").write_text("a claim\n")
    plain = {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = shell('fsctx plan "$1" --run "$2" --model fake', tmp_path / "claims.txt", tmp_path / "é", **plain)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].endswith("cannot be written in this locale: set LC_ALL=C.UTF-8")
    assert "Traceback" not in done.stderr


def test_looking_at_a_cache_makes_nothing_even_in_a_folder_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")
    cache = NodeCache(tmp_path)
    assert (cache.entries(), cache.verify(), cache.prune()) == ([], [], [])
    assert os.listdir(tmp_path) == ["mine"]


def test_the_next_command_can_be_pasted_where_a_path_has_spaces(run: FabricatedRun) -> None:
    done = shell('fsctx collect "$1" -o "$1/../out.csv"', run.root)
    assert done.returncode == 3
    assert f"`fsctx status '{run.root}'`" in done.stderr


def test_a_run_that_lost_the_record_of_its_model_is_damaged(run: FabricatedRun) -> None:
    (record,) = (run.root / names.CONTEXTS).iterdir()
    record.unlink()
    done = shell('fsctx agent "$1"', run.root)
    assert done.returncode == 4
    assert f"{record} is gone" in done.stderr


@pytest.mark.parametrize("content", [None, b"\xff\xfe"])
def test_a_run_that_lost_a_template_is_damaged_for_agents_and_for_collect(
    run: FabricatedRun, content: bytes | None
) -> None:
    (template,) = (run.root / names.TEMPLATES).iterdir()
    template.unlink() if content is None else template.write_bytes(content)
    for command in ("agent", "collect --partial"):
        done = shell(f'fsctx {command} "$1"', run.root)
        assert (done.returncode, done.stderr.count("\n")) == (4, 1)
        assert f"{template} is not" in done.stderr


def test_a_current_folder_that_is_gone_is_named(tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    (tmp_path / "claims.txt").write_text("a claim\n")
    done = shell('cd "$1/gone" && rmdir "$1/gone" && fsctx plan "$1/claims.txt" --run x --model fake', tmp_path)
    assert (done.returncode, done.stderr) == (
        2,
        "fsctx: the current folder, which is gone: No such file or directory\n",
    )


@pytest.mark.parametrize("words", ["agent x --idle-exit nan", "agent x --stall inf", "doctor . --wait 1e300"])
def test_numbers_that_no_clock_knows_are_refused(words: str) -> None:
    done = shell(f"fsctx {words}")
    assert (done.returncode, "is not a number up to" in done.stderr) == (2, True)


def test_a_name_that_is_too_long_is_the_callers_to_mend() -> None:
    done = shell('fsctx plan "$1" --run x --model fake', "x" * 5_000)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)


def test_an_engine_of_models_is_refused_where_the_run_has_the_fake_one(tmp_path: Path) -> None:
    (tmp_path / "claims.txt").write_text("a claim\n")
    for command in ('plan "$1/claims.txt" --run "$1/run" --model fake', 'agent "$1/run" --engine hf'):
        done = shell(f"fsctx {command}", tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "was planned with the fake model" in done.stderr
