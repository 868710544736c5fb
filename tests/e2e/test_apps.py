"""Real agents on runs of applications, those in examples/ among them."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from e2e.running import finish, start_agent
from planning import make_plan, manifest_of

from fsctx.agent.options import AgentOptions
from fsctx.agent.tune import tune
from fsctx.coordinator.collect.collect import Request, Summary, collect
from fsctx.errors import InputError
from fsctx.protocol import names
from fsctx.store import PosixStore

EXAMPLES = Path(__file__).parents[2] / "examples"
CLAIMS = ["The Danube flows through Vienna.", "Mozart wrote Carmen.", "Water boils at 100 °C.", "!", "Cats are dogs."]


def plan(
    folder: Path, app: Path | str, *models: Path, rows: list[dict[str, Any]] | None = None, **options: Any
) -> Path:
    given = rows or [{"claim": claim} for claim in CLAIMS]
    source = folder / "claims.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in given))
    make_plan(source, run=folder / "run", app=str(app), models=tuple(map(str, models)), unit_rows=2, **options)
    return folder / "run"


def collected(run: Path) -> tuple[pa.Table, Summary]:
    output = run.parent / "out.parquet"
    summary = collect(PosixStore(run), Request(output=output))
    return pq.read_table(output), summary


def work(run: Path, *options: str) -> None:
    ((code, said),) = finish(start_agent(run, "--device", "cpu", *options), timeout_s=240)  # importing torch takes long
    assert code == 0, said


def write(folder: Path, code: str) -> Path:
    (folder / "app.py").write_text(code)
    return folder / "app.py"


def test_two_agents_compute_an_application_and_load_its_context_once_each(tmp_path: Path) -> None:
    code = (
        "import os\nLABELS = ['long', 'short']\nOUTPUT = {'n': int, 'by': int}\n"
        "def load(model, device): return model.read_text(), os.getpid()\n"
        "def measure(context, rows):\n"
        "    words, pid = context\n"
        "    return [{'verdict': words if len(r['claim']) > 9 else 'short', 'n': len(r['claim']), 'by': pid}"
        " for r in rows]\n"
    )
    (tmp_path / "words.txt").write_text("long")
    rows = [{"claim": "x" * (i + 1), "label": "long" if i > 9 else "short"} for i in range(40)]
    run = plan(tmp_path, f"{write(tmp_path, code)}:measure", tmp_path / "words.txt", rows=rows)
    ended = finish(start_agent(run, "--device", "cpu"), start_agent(run, "--device", "cpu"))
    assert [code for code, _ in ended] == [0, 0], ended
    table, summary = collected(run)
    assert table["output_n"].to_pylist() == list(range(1, 41))
    assert table["verdict"].to_pylist() == ["short"] * 9 + ["long"] * 31
    assert len(set(table["output_by"].to_pylist())) == len(set(table["agent"].to_pylist()))
    assert set(table["text"].to_pylist()) == {None}
    assert (summary.tasks[0].accuracy, summary.tasks[0].model, summary.tasks[0].template) == (0.975, "words", "measure")
    assert summary.duplicates == 0


def test_declared_columns_are_in_every_kind_of_file(tmp_path: Path) -> None:
    code = "OUTPUT = {'v': list[float], 'n': int}\ndef f(c, rows): return [{'v': [0.5, 1], 'n': 3}] * len(rows)"
    run = plan(tmp_path, f"{write(tmp_path, code)}:f", rows=[{"claim": "a"}])
    work(run)
    for ending in ("csv", "jsonl"):
        collect(PosixStore(run), Request(output=tmp_path / f"out.{ending}"))
    assert ',"[0.5, 1.0]",3,"ok",' in (tmp_path / "out.csv").read_text()
    (line,) = (tmp_path / "out.jsonl").read_text().splitlines()
    assert (json.loads(line)["output_v"], json.loads(line)["output_n"]) == ([0.5, 1.0], 3)


def test_columns_of_the_input_reach_the_function(tmp_path: Path) -> None:
    app = write(tmp_path, "def join(_, rows): return [f\"{r['claim']} {r['year']}\" for r in rows]")
    run = plan(tmp_path, f"{app}:join", rows=[{"claim": "a", "year": 1}, {"claim": "b", "year": 2}])
    work(run)
    assert collected(run)[0]["text"].to_pylist() == ["a 1", "b 2"]


@pytest.mark.parametrize(
    ("code", "expected", "said"),
    [
        (
            "raise ValueError('no')\ndef f(c, rows): ...",
            78,
            "app.py raised while it was imported: ValueError: no (line 1)",
        ),
        ("def load(): return 1 // 0\ndef f(c, rows): ...", 78, "load() of app.py raised ZeroDivisionError"),
    ],
)
def test_an_application_that_cannot_begin_ends_every_agent_in_one_line(
    tmp_path: Path, code: str, expected: int, said: str
) -> None:
    run = plan(tmp_path, f"{write(tmp_path, code)}:f")
    ((ended, told),) = finish(start_agent(run, "--device", "cpu"))
    assert ended == expected
    assert f"fsctx: {said}" in told.splitlines()[-1]
    assert "Traceback" not in told


def test_wrong_answers_are_rows_with_a_reason_and_the_run_ends(tmp_path: Path) -> None:
    app = write(tmp_path, "def f(c, rows): return [r['claim'] if len(r['claim']) > 1 else 3 for r in rows][:1]")
    run = plan(tmp_path, f"{app}:f")
    work(run)
    table, summary = collected(run)
    assert (summary.ok, summary.errors, summary.missing) == (4, 1, 0)
    assert table["text"].to_pylist() == [*CLAIMS[:3], None, CLAIMS[4]]
    assert summary.problems[0].reason == "f gave a wrong answer: a row's answer is int, and must be a dict or a str"


def test_law_12_an_agent_does_not_execute_what_was_changed_in_the_run(tmp_path: Path) -> None:
    run = plan(tmp_path, f"{write(tmp_path, 'def f(c, rows): return rows')}:f")
    app = manifest_of(run).app
    assert app is not None
    (run / names.app(app.sha256)).write_text(f"open({str(tmp_path / 'executed')!r}, 'w')\ndef f(c, rows): return rows")
    ((code, said),) = finish(start_agent(run, "--device", "cpu"))
    assert (code, "was not run" in said) == (4, True)
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize("option", [("--engine", "hf"), ("--dtype", "float16"), ("--tp", "2")])
def test_an_application_is_the_engine_itself(tmp_path: Path, option: tuple[str, str]) -> None:
    run = plan(tmp_path, f"{write(tmp_path, 'def f(c, rows): return rows')}:f")
    ((code, said),) = finish(start_agent(run, *option))
    assert code == 2
    assert "this run has an application" in said


def test_an_application_tells_nothing_of_a_device_to_tune(tmp_path: Path) -> None:
    run = plan(tmp_path, f"{write(tmp_path, 'def f(c, rows): return rows')}:f")
    with pytest.raises(InputError, match="planned with an application"):
        tune(run, AgentOptions(cache=tmp_path), say=print)


def test_the_example_without_a_language_model_finds_documents(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "documents.sqlite") as database:
        database.execute("CREATE TABLE documents (title TEXT, body TEXT)")
        articles = [("Danube", "flows through Vienna and Budapest"), ("Mozart", "wrote operas in Vienna")]
        database.executemany("INSERT INTO documents VALUES (?, ?)", articles)
    database.close()
    run = plan(tmp_path, f"{EXAMPLES}/not_a_language_model.py:find", tmp_path / "documents.sqlite")
    work(run)
    table, _ = collected(run)
    assert table["output_title"].to_pylist() == ["Danube", "Mozart", None, None, None]
    assert table["output_shared_words"].to_pylist()[:2] == [4, 2]
    assert table["output_is_certain"].to_pylist()[:2] == [True, True]
    assert table["error"].to_pylist()[2:] == ["no document shares a word with this claim"] * 3


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("transformers")
    from tiny_models import make_model

    return make_model(tmp_path_factory.mktemp("tiny"))


def test_the_example_of_fact_verification_scores_every_label(tmp_path: Path, tiny: Path) -> None:
    labels = ["SUPPORTED", "REFUTED", "NOT ENOUGH INFO"]
    run = plan(tmp_path, f"{EXAMPLES}/fact_verification.py:verify", tiny)
    work(run)
    for row in collected(run)[0].to_pylist():
        scores = {label: row[f"score_{label}"] for label in labels}
        assert max(scores.values()) < 0
        assert row["verdict"] == max(scores, key=lambda label: scores[label])


def test_the_example_of_free_generation_writes_a_text_for_each_claim(tmp_path: Path, tiny: Path) -> None:
    run = plan(tmp_path, f"{EXAMPLES}/free_generation.py:reword", tiny)
    work(run)
    texts = collected(run)[0]["text"].to_pylist()
    assert all(texts)
    assert len(set(texts)) > 1


def test_the_example_of_embeddings_gives_vectors_of_length_one_that_the_batch_does_not_change(
    tmp_path: Path, tiny: Path
) -> None:
    run = plan(tmp_path, f"{EXAMPLES}/embeddings.py:embed", tiny, rows=[{"claim": c} for c in [*CLAIMS, CLAIMS[0]]])
    work(run)
    table, _ = collected(run)
    vectors = table["output_embedding"].to_pylist()
    assert {len(vector) for vector in vectors} == {32}
    assert [sum(x * x for x in vector) for vector in vectors] == pytest.approx([1.0] * 6)
    assert vectors[0] == pytest.approx(vectors[5], abs=1e-5)
    assert table["output_words"].to_pylist()[0] == 5
