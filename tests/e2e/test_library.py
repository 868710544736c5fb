"""docs/python.md and docs/applications.md, executed as they stand there, with real agents."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from e2e.running import finish, start_agent

import fsctx
from fsctx.protocol import names
from fsctx.store import PosixStore

DOCS = Path(__file__).parents[2] / "docs"


def blocks(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (DOCS / page).read_text(encoding="utf-8"), re.S | re.M)


def test_the_page_about_the_library_runs_from_its_first_line_to_its_last(tmp_path: Path) -> None:
    rows = ['{"claim": "a", "label": "SUPPORTS", "year": 1}', '{"claim": "b", "label": "REFUTES", "year": 2}']
    (tmp_path / "claims.jsonl").write_text("\n".join(rows))
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "FSCTX_CACHE": str(tmp_path / "cache")}
    script = [sys.executable, "-W", "error", "-c", "\n".join(blocks("python.md"))]
    done = subprocess.run(script, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert said[:2] == ["2 claims in 1 units", "done 2 of 2"]
    assert said[-1] == "unit 1000000: this run has units 0 to 0: see `fsctx status`"
    assert (tmp_path / "verdicts.parquet").exists()
    store = PosixStore(tmp_path / "my-run")
    assert len(store.list(names.AGENTS)) == 1


def test_the_application_on_its_page_does_what_the_page_says(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(blocks("applications.md")[0])
    (tmp_path / "stopwords.txt").write_text("the a is")
    (tmp_path / "claims.txt").write_text("the sky is blue\na b c d e f\nthe a is\n")
    app = f"{tmp_path}/app.py:classify"
    run = fsctx.plan(tmp_path / "claims.txt", run=tmp_path / "my-run", app=app, model=tmp_path / "stopwords.txt")
    ((code, said),) = finish(start_agent(run.path, "--device", "cpu"))
    assert code == 0, said
    table = run.collect()
    assert table["verdict"].to_pylist() == ["short", "long", "short"]
    assert table["output_n_words"].to_pylist() == [2, 5, 0]
    assert table["output_words"].to_pylist()[0] == ["sky", "blue"]


def test_an_openai_batch_is_answered_request_by_request(tmp_path: Path) -> None:
    questions = {f"request-{n}": f"Is {n} a prime?" for n in range(20)}
    lines = [
        {"custom_id": name, "url": "/v1/chat/completions", "body": {"messages": [{"role": "user", "content": text}]}}
        for name, text in questions.items()
    ]
    (tmp_path / "batch.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    source, run_folder = tmp_path / "batch.jsonl", tmp_path / "run"
    run = fsctx.plan(source, run=run_folder, model="fake", template="messages", method="generate", unit_rows=4)
    ended = finish(start_agent(run.path), start_agent(run.path))
    assert [code for code, _ in ended] == [0, 0], ended
    table = run.collect(tmp_path / "answers.jsonl", form="openai")
    answers = [json.loads(line) for line in (tmp_path / "answers.jsonl").read_text().splitlines()]
    assert [answer["custom_id"] for answer in answers] == list(questions)
    texts = [answer["response"]["body"]["choices"][0]["message"]["content"] for answer in answers]
    assert texts == table["text"].to_pylist()
    assert all(texts)
