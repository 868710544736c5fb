"""Applications: what plan makes of their files, and what the engine makes of their answers."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from planning import make_plan, manifest_of, offline

from fsctx.agent.batching import Budget, infer_all
from fsctx.agent.device import DeviceInfo
from fsctx.agent.engines.app.engine import AppEngine
from fsctx.agent.engines.base import BoundTask, Encoded, Row
from fsctx.coordinator.plan.app_file import read_app
from fsctx.coordinator.plan.model_files import find_files
from fsctx.errors import Damaged, EngineError, InputError, Misconfigured, OutOfMemory, Unfit
from fsctx.protocol import names, verdicts
from fsctx.protocol.apps import read_code
from fsctx.protocol.outputs import fold, unfold
from fsctx.protocol.verdicts import Origin, Status, Verdict
from fsctx.store import PosixStore

CPU = DeviceInfo(name="cpu", kind="cpu", index=0, memory_bytes=0, free_bytes=0)
UPPER = "def upper(context, rows):\n    return [row['claim'].upper() for row in rows]\n"


def write(folder: Path, code: str) -> Path:
    path = folder / "app.py"
    path.write_text(code, encoding="utf-8")
    return path


def claims(folder: Path, n: int = 4) -> Path:
    path = folder / "claims.jsonl"
    path.write_text("".join(json.dumps({"claim": f"claim {i}", "year": 1990 + i}) + "\n" for i in range(n)))
    return path


def engine_of(folder: Path, code: str, name: str = "classify", *, has_model: bool = True) -> AppEngine:
    planned = read_app(f"{write(folder, code)}:{name}")
    return AppEngine(planned.app, planned.code, where=str(folder / "app.py"), device=CPU, has_model=has_model)


def answers(folder: Path, code: str, n: int = 4, name: str = "classify") -> list[Verdict]:
    """Return what becomes of n rows under an application, in order."""
    engine = engine_of(folder, code, name)
    model = engine.load(folder)
    bound = model.bind(BoundTask(template=read_app(f"{folder}/app.py:{name}").app.template, method="app"))
    rows = bound.encode([Row(row=i, claim=f"claim {i}", columns={"year": 1990 + i}) for i in range(n)])
    found = infer_all(bound, rows, budget=Budget(model.batch_tokens), should_stop=lambda: False)
    return sorted((verdict for part in found for verdict in part), key=lambda verdict: verdict.row)


def classify(body: str, *, head: str = "") -> str:
    return f"{head}\ndef classify(context, rows):\n    {body}\n"


def test_a_plan_stores_the_file_by_its_hash_and_says_what_it_declares(tmp_path: Path) -> None:
    head = 'LABELS = ["A", "B"]\nOUTPUT = {"vector": list[float], "n": int}\nBATCH_ROWS: int = 7\n'
    app = write(tmp_path, head + classify("return rows"))
    make_plan(claims(tmp_path), run=tmp_path / "run", app=f"{app}:classify", models=())
    manifest = manifest_of(tmp_path / "run")
    assert manifest.app is not None
    assert manifest.app.labels == ("A", "B")
    assert manifest.app.outputs == {"vector": "list[float]", "n": "int"}
    assert manifest.app.batch_rows == 7
    assert [(task.model, task.template, task.method) for task in manifest.tasks] == [("none", "classify", "app")]
    assert (tmp_path / "run" / names.app(manifest.app.sha256)).read_bytes() == app.read_bytes()


def test_a_plan_does_not_execute_the_file(tmp_path: Path) -> None:
    app = write(tmp_path, f"open({str(tmp_path / 'executed')!r}, 'w')\nraise SystemExit\n" + UPPER)
    make_plan(claims(tmp_path), run=tmp_path / "run", app=f"{app}:upper", models=())
    assert not (tmp_path / "executed").exists()


def test_the_same_plan_again_is_welcome_and_one_with_another_application_is_not(tmp_path: Path) -> None:
    source, app = claims(tmp_path), write(tmp_path, UPPER)
    make_plan(source, run=tmp_path / "run", app=f"{app}:upper", models=())
    assert not make_plan(source, run=tmp_path / "run", app=f"{app}:upper", models=()).is_new
    write(tmp_path, UPPER + "# changed\n")
    with pytest.raises(InputError, match="the application differ"):
        make_plan(source, run=tmp_path / "run", app=f"{app}:upper", models=())
    with pytest.raises(InputError, match="the application"):
        make_plan(source, run=tmp_path / "run")


@pytest.mark.parametrize(
    ("code", "spec", "said"),
    [
        (UPPER, "app.py", "write it as FILE:NAME"),
        (UPPER, "app.py:no-name", "write it as FILE:NAME"),
        (UPPER, "other.py:upper", "other.py cannot be read (No such file or directory)"),
        (UPPER, "app.py:uper", "defines no function 'uper' at its top level (did you mean 'upper'?); it has: upper"),
        ("upper = str.upper\n", "app.py:upper", "it has: none"),
        ("def upper(context, rows)\n", "app.py:upper", "is not Python: line 1: expected ':'"),
        ("\0", "app.py:upper", "is not Python: "),
        ("def upper(rows): ...\n", "app.py:upper", "line 1: upper must take two arguments"),
        ("def upper(a, b, c): ...\n", "app.py:upper", "line 1: upper must take two arguments"),
        ("def upper(a, b, *, c): ...\n", "app.py:upper", "line 1: upper must take two arguments"),
        ("async def upper(a, b): ...\n", "app.py:upper", "line 1: upper is async: write def upper"),
        ("async def load(): ...\n" + UPPER, "app.py:upper", "line 1: load is async: write def load"),
        ("def load(path): ...\n" + UPPER, "app.py:upper", "load asks for path: it can ask for model and device"),
        ("LABELS = 'A'\n" + UPPER, "app.py:upper", "line 1: LABELS must be a list of distinct strings"),
        ("LABELS = ['A', 'A']\n" + UPPER, "app.py:upper", "LABELS must be"),
        ("LABELS = sorted('AB')\n" + UPPER, "app.py:upper", "LABELS must be"),
        ("OUTPUT = {'n': complex}\n" + UPPER, "app.py:upper", "types: str, int, float, bool, list[str]"),
        ("OUTPUT = ['n']\n" + UPPER, "app.py:upper", "OUTPUT must be a dict of names and types"),
        ("OUTPUT = {'text': str}\n" + UPPER, "app.py:upper", "text is there in any case"),
        ("OUTPUT = {'n': int, **more}\n" + UPPER, "app.py:upper", "OUTPUT must be"),
        ("BATCH_ROWS = 0\n" + UPPER, "app.py:upper", "BATCH_ROWS must be a whole number of at least 1"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_in_one_line_and_nothing_is_written(
    tmp_path: Path, code: str, spec: str, said: str
) -> None:
    write(tmp_path, code)
    with pytest.raises(InputError) as seen:
        make_plan(claims(tmp_path), run=tmp_path / "run", app=f"{tmp_path}/{spec}", models=())
    assert said in str(seen.value)
    assert "\n" not in str(seen.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("options", [{"templates": ("fever",)}, {"method": "generate"}, {"gold": {"x": "Y"}}])
def test_an_application_takes_no_template_no_method_and_no_labels_that_it_does_not_have(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    with pytest.raises(InputError):
        make_plan(claims(tmp_path), run=tmp_path / "run", app=f"{write(tmp_path, UPPER)}:upper", models=(), **options)


def test_a_context_is_any_file_or_all_files_of_a_folder_but_hidden_ones(tmp_path: Path) -> None:
    for name in ("a.db", "deep/er/b.bin", ".git/config", "deep/.cache"):
        (tmp_path / "folder" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "folder" / name).write_bytes(b"x")
    folder = find_files(str(tmp_path / "folder"), fetch=offline)
    assert (folder.kind, folder.paths) == ("folder", ("a.db", "deep/er/b.bin"))
    file = find_files(str(tmp_path / "folder" / "a.db"), fetch=offline)
    assert (file.kind, file.origin, file.paths) == ("file", tmp_path / "folder", ("a.db",))
    (tmp_path / "empty").mkdir()
    for ref in (str(tmp_path / "empty"), str(tmp_path / "nothing"), "./nothing"):
        with pytest.raises(InputError):
            find_files(ref, fetch=offline)


def test_law_12_a_file_that_is_not_the_planned_one_is_not_executed(tmp_path: Path) -> None:
    make_plan(claims(tmp_path), run=tmp_path / "run", app=f"{write(tmp_path, UPPER)}:upper", models=())
    app = manifest_of(tmp_path / "run").app
    assert app is not None
    store = PosixStore(tmp_path / "run")
    assert read_code(store, app) == UPPER.encode()
    stored = tmp_path / "run" / names.app(app.sha256)
    stored.write_text(UPPER + "import os\n")
    with pytest.raises(Damaged, match="is not the file that was planned, and was not run"):
        read_code(store, app)
    stored.unlink()
    with pytest.raises(Damaged, match="is gone"):
        read_code(store, app)


def test_load_is_given_what_it_asks_for_by_name(tmp_path: Path) -> None:
    body = classify("return [str(context)] * len(rows)")
    for head, expected in (
        ("def load(device, model): return (device, model.name)", f"('cpu', '{tmp_path.name}')"),
        ("def load(): return 7", "7"),
        ("def load(model, unasked=3): return unasked", "3"),
        ("", "None"),
    ):
        assert answers(tmp_path, head + "\n" + body, n=1)[0].text == expected
    engine = engine_of(tmp_path, "def load(model): return model\n" + body, has_model=False)
    assert engine.load(tmp_path)._context is None


def test_the_file_is_executed_once_and_its_context_loaded_again_when_asked(tmp_path: Path) -> None:
    head = "def note(word):\n    with open(__file__ + '.log', 'a') as log: log.write(word)\n"
    head += "note('import ')\ndef load(): note('load ')\n"
    engine = engine_of(tmp_path, head + classify("return rows"))
    engine.load(tmp_path).close()
    engine.load(tmp_path).close()
    assert (tmp_path / "app.py.log").read_text() == "import load load "


@pytest.mark.parametrize(
    ("head", "kind", "said"),
    [
        ("import no_such_module", Misconfigured, "app.py raised while it was imported: ModuleNotFoundError: No module"),
        ("\n\nraise ValueError('a\\nb')", Misconfigured, "imported: ValueError: a (line 3)"),
        ("raise SystemExit(3)", Misconfigured, "imported: SystemExit: 3 (line 1)"),
        ("def load():\n  return {}['x']", Misconfigured, "load() of app.py raised KeyError: 'x' (line 2)"),
        ("def load():\n  raise MemoryError", Unfit, "load() of app.py raised MemoryError (line 2): try another node"),
    ],
)
def test_what_raises_before_the_first_row_ends_in_one_line(
    tmp_path: Path, head: str, kind: type[Exception], said: str
) -> None:
    with pytest.raises(kind) as seen:
        engine_of(tmp_path, head + "\n" + classify("return rows")).load(tmp_path)
    assert said in str(seen.value)
    assert "\n" not in str(seen.value)


def test_a_function_may_give_texts_dicts_or_both_in_any_iterable(tmp_path: Path) -> None:
    code = classify(
        "yield from ({'verdict': 'A'} if row['year'] % 2 else f\"{row['claim']} of {row['year']}\" for row in rows)"
    )
    found = answers(tmp_path, code)
    assert [verdict.verdict for verdict in found] == [None, "A", None, "A"]
    assert [verdict.text for verdict in found] == ["claim 0 of 1990", None, "claim 2 of 1992", None]
    assert {verdict.status for verdict in found} == {Status.OK}


def test_labels_scores_and_declared_columns_reach_the_verdict(tmp_path: Path) -> None:
    head = "LABELS = ['A', 'B']\nOUTPUT = {'vector': list[float], 'n': int, 'name': str}\nimport numpy"
    body = "return [{'verdict': 'B', 'scores': {'B': -0.5, 'A': -1}, 'n': numpy.int32(3), 'vector': numpy.ones(2)}]"
    (found,) = answers(tmp_path, classify(body, head=head), n=1)
    assert (found.verdict, found.scores, found.status) == ("B", (-1.0, -0.5), Status.OK)
    assert json.loads(found.text or "") == {"text": None, "vector": [1.0, 1.0], "n": 3, "name": None}


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("3", "a row's answer is int, and must be a dict or a str"),
        ("None", "a row's answer is NoneType"),
        ("{'verdict': 'C'}", "the verdict 'C' is not among LABELS (A, B)"),
        ("{'verdict': 1}", "'verdict' is int, and must be a str"),
        ("{'summary': 'x'}", "'summary' is no column: declare it in OUTPUT"),
        ("{'n': 'x'}", "'n' is str, and OUTPUT declares int"),
        ("{'n': True}", "'n' is bool, and OUTPUT declares int"),
        ("{'n': 2**63}", "'n' is int, and OUTPUT declares int"),
        ("{'vector': [1.0, 'x']}", "'vector' is list of float, str, and OUTPUT declares list[float]"),
        ("{'vector': 1.0}", "'vector' is float"),
        ("{'scores': {'A': -1}}", "'scores' must be a dict with one number for each of LABELS"),
        ("{'scores': {'A': -1, 'B': 'x'}}", "'scores' must be a dict"),
        ("{'scores': {'A': -1, 'B': 10**400}}", "'scores' must be a dict"),
        ("{'text': 'caf\\udce9'}", "'text' holds half a character"),
    ],
)
def test_a_wrong_answer_costs_its_row_alone_and_says_why(tmp_path: Path, answer: str, said: str) -> None:
    head = "LABELS = ['A', 'B']\nOUTPUT = {'n': int, 'vector': list[float]}"
    code = classify(f"return [{answer} if row['claim'] == 'claim 2' else {{'n': 1}} for row in rows]", head=head)
    found = answers(tmp_path, code)
    assert [verdict.status for verdict in found] == [Status.OK, Status.OK, Status.ERROR, Status.OK]
    assert said in (found[2].error or "")


@pytest.mark.parametrize("whole", ["3", "None", "{'verdict': 'A'}.keys", "'one text for all'", "{'verdict': 'A'}"])
def test_an_answer_that_is_no_list_makes_no_verdicts_up(tmp_path: Path, whole: str) -> None:
    found = answers(tmp_path, classify(f"return {whole}"))
    assert {verdict.status for verdict in found} == {Status.ERROR}
    assert "must return one answer for each row" in (found[0].error or "")


def test_of_too_few_answers_the_rows_that_have_none_are_found(tmp_path: Path) -> None:
    found = answers(tmp_path, classify("return [row['claim'] for row in rows if row['claim'] != 'claim 1']"))
    assert [verdict.status for verdict in found] == [Status.OK, Status.ERROR, Status.OK, Status.OK]
    assert found[1].error == "classify gave 0 answers for 1 row, and must return one answer for each row"


def test_an_application_that_always_gives_too_few_is_not_taken_for_a_bad_node(tmp_path: Path) -> None:
    found = answers(tmp_path, classify("return []"), n=40)
    assert len(found) == 40
    assert {verdict.error for verdict in found} == {
        "classify gave 0 answers for 1 row, and must return one answer for each row"
    }


def test_a_row_says_its_own_error(tmp_path: Path) -> None:
    (found,) = answers(tmp_path, classify("return [{'error': 'nothing found'}]"), n=1)
    assert (found.status, found.error, found.text) == (Status.ERROR, "nothing found", None)


def test_a_row_over_which_the_function_raises_costs_itself(tmp_path: Path) -> None:
    found = answers(tmp_path, classify("return [str(1 // (row['year'] - 1991)) for row in rows]"))
    assert [verdict.status for verdict in found] == [Status.OK, Status.ERROR, Status.OK, Status.OK]
    assert found[1].error == "classify raised ZeroDivisionError: integer division or modulo by zero"


def test_an_error_that_no_file_could_keep_is_told_in_characters_that_it_can(tmp_path: Path) -> None:
    found = answers(tmp_path, classify("open('/nowhere/caf\\udce9')"), n=1)
    assert "/nowhere/caf" in (found[0].error or "")
    (found[0].error or "").encode()


@pytest.mark.parametrize(
    ("raised", "kind"),
    [
        ("MemoryError", OutOfMemory),
        ("type('OutOfMemoryError', (RuntimeError,), {})('CUDA')", OutOfMemory),
        ("type('AcceleratorError', (RuntimeError,), {})('CUDA error')", Unfit),
        ("SystemExit(1)", EngineError),
    ],
)
def test_memory_and_devices_that_fail_are_told_from_the_rest(
    tmp_path: Path, raised: str, kind: type[Exception]
) -> None:
    engine = engine_of(tmp_path, classify(f"raise {raised}"))
    bound = engine.load(tmp_path).bind(
        BoundTask(template=read_app(f"{tmp_path}/app.py:classify").app.template, method="app")
    )
    with pytest.raises(kind) as seen:
        bound.infer([Encoded(row=0, n_tokens=1, payload={}), Encoded(row=1, n_tokens=1, payload={})])
    assert seen.type is kind


def test_folded_columns_unfold_with_their_types(tmp_path: Path) -> None:
    declared = {"vector": "list[float]", "n": "int", "names": "list[str]", "is_good": "bool", "share": "float"}
    values = {"vector": np.array([0.1, 2e-9, float("nan")], np.float32), "n": -3, "names": ["é"], "share": 1}
    texts = [fold("hello", values, declared), None]
    rows = [Verdict(row=0, text=texts[0]), Verdict(row=1, status=Status.ERROR, error="x")]
    origin = Origin(generation=0, agent="a", host="h", device="cpu", engine="app 1")
    table = unfold(verdicts.to_table(rows, (), origin), declared, where="here")
    assert table["text"].to_pylist() == ["hello", None]
    assert table.schema.field("output_vector").type == pa.list_(pa.float32())
    first, second, nan = table["output_vector"][0].as_py()
    assert (np.float32(first), np.float32(second), nan) == (np.float32(0.1), np.float32(2e-9), None)
    rest = {name: table[f"output_{name}"].to_pylist() for name in ("n", "names", "is_good", "share")}
    assert rest == {"n": [-3, None], "names": [["é"], None], "is_good": [None, None], "share": [1.0, None]}


@pytest.mark.parametrize("text", ["no json", "[]", '{"n": "x"}'])
def test_texts_that_no_agent_writes_are_damage(text: str) -> None:
    origin = Origin(generation=0, agent="a", host="h", device="cpu", engine="app 1")
    table = verdicts.to_table([Verdict(row=0, text=text)], (), origin)
    with pytest.raises(Damaged, match="not what an application's agent writes"):
        unfold(table, {"n": "int"}, where="here")


def test_the_record_of_an_application_survives_its_encoding(tmp_path: Path) -> None:
    app = read_app(f"{write(tmp_path, UPPER)}:upper").app
    make_plan(claims(tmp_path), run=tmp_path / "run", app=f"{tmp_path}/app.py:upper", models=())
    assert manifest_of(tmp_path / "run").app == dataclasses.replace(app)


def test_gold_labels_that_an_application_has_no_use_for_are_not_called_unmapped(tmp_path: Path) -> None:
    source = tmp_path / "claims.jsonl"
    source.write_text('{"claim": "a", "label": "x"}\n')
    app = write(tmp_path, UPPER + "LABELS = ['X', 'Y']\ndef other(context, rows): ...\n")
    assert make_plan(source, run=tmp_path / "one", app=f"{app}:upper", models=()).labels[0].meaning == {"upper": "X"}
    write(tmp_path, UPPER)
    assert make_plan(source, run=tmp_path / "two", app=f"{app}:upper", models=()).labels == ()
