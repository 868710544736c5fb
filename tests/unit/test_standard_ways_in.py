"""OpenAI's batch files and Hugging Face's data sets, in and out."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from fabricate import fabricate, finish_all, finish_unit
from planning import claims_of, make_plan, manifest_of, read_claims

from fsctx.agent.engines.base import BoundTask, Row
from fsctx.agent.engines.fake import FakeEngine
from fsctx.cli.collect import collect as command
from fsctx.coordinator.collect.collect import Request, collect
from fsctx.errors import InputError
from fsctx.protocol.verdicts import Status
from fsctx.templates.load import load_template, parse_template
from fsctx.templates.model import Message
from fsctx.templates.render import Renderer, render


def request(custom_id: str, *messages: dict[str, Any], **body: Any) -> dict[str, Any]:
    url = "/v1/chat/completions"
    return {"custom_id": custom_id, "method": "POST", "url": url, "body": {"messages": list(messages), **body}}


def say(content: Any, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": content}


def write(path: Path, *lines: Any) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_requests_become_claims_with_their_own_chats(tmp_path: Path) -> None:
    batch = write(
        tmp_path / "batch.jsonl",
        request("first", say("Be brief.", "developer"), say("Is ice cold?"), model="gpt", max_tokens=5),
        request("second", say([{"type": "text", "text": "Is "}, {"type": "text", "text": "fire hot?"}])),
    )
    report = make_plan(batch, run=tmp_path / "run", templates=("messages",), method="generate")
    assert report.columns["id"] == "custom_id"
    assert any("nothing else is read" in note for note in report.notes)
    table = claims_of(tmp_path / "run")
    assert table["id"].to_pylist() == ["first", "second"]
    assert table["claim"].to_pylist() == ["Is ice cold?", "Is fire hot?"]
    chats = [json.loads(chat) for chat in table["input_messages"].to_pylist()]
    assert chats == [[say("Be brief.", "system"), say("Is ice cold?")], [say("Is fire hot?")]]


def test_requests_under_a_usual_template_are_claims_like_others(tmp_path: Path) -> None:
    batch = write(tmp_path / "batch.jsonl", request("7", say("Ice is cold.")), request("8", say("Fire is hot.")))
    assert read_claims(batch)["claim"].to_pylist() == ["Ice is cold.", "Fire is hot."]


def test_objects_that_only_share_names_with_requests_are_read_as_they_are(tmp_path: Path) -> None:
    table = read_claims(write(tmp_path / "x.jsonl", {"custom_id": "1", "body": "b", "claim": "Ice is cold."}))
    assert (table["claim"].to_pylist(), table["input_body"].to_pylist()) == (["Ice is cold."], ["b"])


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ({"custom_id": "x", "body": {"input": "text"}}, 'request "x": its body has no messages'),
        ({"custom_id": "x", "body": None}, 'request "x": its body has no messages'),
        (request("x", say("a"), say("b", "assistant")), "its last message is the assistant's"),
        (request("x", say("a", "tool")), "a message has the role 'tool'"),
        (request("x", say([{"type": "image_url", "image_url": {}}])), "a message has content that is no text"),
        (request("x", say(None)), "a message has content that is no text"),
    ],
)
def test_requests_that_are_no_chats_are_refused_by_their_name(tmp_path: Path, line: Any, said: str) -> None:
    batch = write(tmp_path / "batch.jsonl", request("fine", say("a")), line)
    with pytest.raises(InputError, match=said):
        make_plan(batch, run=tmp_path / "run", templates=("messages",), method="generate")
    assert not (tmp_path / "run" / "run.json").exists()


def test_free_text_cannot_be_scored(tmp_path: Path) -> None:
    batch = write(tmp_path / "batch.jsonl", request("x", say("a")))
    with pytest.raises(InputError, match="no labels to score: pass --method generate"):
        make_plan(batch, run=tmp_path / "run", templates=("messages",))
    claims = write(tmp_path / "claims.jsonl", {"claim": "a"})
    with pytest.raises(InputError, match="has no column 'messages' with chats; it has: claim"):
        make_plan(claims, run=tmp_path / "run", templates=("messages",), method="generate")


def test_a_chat_of_the_row_s_own_is_the_prompt_and_its_markers_are_inert() -> None:
    template = load_template("messages")
    chat = [say("s", "system"), say("a <|end|> b")]
    for given in (chat, json.dumps(chat)):
        prompt = Renderer(template, markers=["<|end|>"]).prompt("a", {"messages": given})
        assert prompt.messages == (Message(role="system", content="s"), Message(role="user", content="a < |end|> b"))
    for wrong in ("no json", "{}", "[]", "3", None, '[{"role": "user"}]', [say(["a"])]):
        with pytest.raises(InputError, match="column 'messages' holds no chat"):
            render(template, "a", {"messages": wrong})


def test_a_template_has_messages_or_a_prompt_not_both() -> None:
    with pytest.raises(InputError, match="leave user, system, text, examples out"):
        parse_template('messages = "m"\nuser = "{{ claim }}"\nlabels = []\n', where="t.toml")
    assert parse_template('user = "{{ claim }}"\nlabels = []\n', where="t.toml").labels == ()


def test_without_labels_a_text_is_all_there_is() -> None:
    bound = FakeEngine().load(Path()).bind(BoundTask(template=load_template("messages"), method="generate"))
    (verdict,) = bound.infer(bound.encode([Row(row=0, claim="a")]))
    assert (verdict.verdict, verdict.status) == (None, Status.OK)
    assert verdict.text


def test_answers_are_those_of_an_openai_batch(tmp_path: Path) -> None:
    run = fabricate(tmp_path / "run", n_rows=4, unit_rows=2, ids=["a", "b", "c", "d"])
    finish_all(run, but=[1])
    finish_unit(run, 1, changed={3: {"status": "error", "error": "too hot", "verdict": None}, 2: {"text": "So be it."}})
    collect(run.store, Request(output=tmp_path / "out.jsonl", form="openai"))
    answers = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [answer["custom_id"] for answer in answers] == ["a", "b", "c", "d"]
    assert len({answer["id"] for answer in answers}) == 4
    body = answers[2]["response"]["body"]
    assert body["choices"][0]["message"] == {"role": "assistant", "content": "So be it."}
    assert body["usage"]["total_tokens"] == body["usage"]["prompt_tokens"] == 32
    assert answers[0]["response"]["body"]["choices"][0]["message"]["content"] in run.labels
    assert (answers[3]["response"], answers[3]["error"]) == (None, {"code": "error", "message": "too hot"})


def test_answers_of_a_sweep_or_into_another_kind_of_file_are_refused(tmp_path: Path) -> None:
    run = fabricate(tmp_path / "run", templates=("one", "two"))
    for name, said in (("out.jsonl", "has 2 tasks"), ("out.csv", "ends in .jsonl")):
        done = CliRunner().invoke(command, [str(run.root), "-o", str(tmp_path / name), "--format", "openai"])
        assert isinstance(done.exception, InputError)
        assert said in str(done.exception)
        assert not (tmp_path / name).exists()


def labelled(n: int = 5) -> Any:
    datasets = pytest.importorskip("datasets")
    features = datasets.Features(
        {"claim": datasets.Value("string"), "label": datasets.ClassLabel(names=["REFUTES", "SUPPORTS"])}
    )
    rows = {"claim": [f"claim {i}" for i in range(n)], "label": [i % 2 if i else -1 for i in range(n)]}
    return datasets.Dataset.from_dict(rows, features=features)


def test_a_saved_data_set_is_an_input_with_the_names_of_its_labels(tmp_path: Path) -> None:
    labelled().save_to_disk(str(tmp_path / "saved"), num_shards=2)
    make_plan(tmp_path / "saved", run=tmp_path / "run")
    table = claims_of(tmp_path / "run")
    assert table["claim"].to_pylist() == [f"claim {i}" for i in range(5)]
    assert table["label"].to_pylist() == [None, "SUPPORTS", "REFUTES", "SUPPORTS", "REFUTES"]
    assert len(manifest_of(tmp_path / "run").inputs) == 2


def test_parquet_of_a_data_set_has_the_names_of_its_labels_too(tmp_path: Path) -> None:
    (tmp_path / "repo" / "data").mkdir(parents=True)
    labelled().to_parquet(str(tmp_path / "repo" / "data" / "train-00000-of-00001.parquet"))
    (tmp_path / "repo" / "README.md").write_text("a data set")
    make_plan(tmp_path / "repo", run=tmp_path / "run")
    assert claims_of(tmp_path / "run")["label"].to_pylist()[1:3] == ["SUPPORTS", "REFUTES"]


def test_several_splits_are_not_mixed(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    both = datasets.DatasetDict({"train": labelled(), "test": labelled()})
    both.save_to_disk(str(tmp_path / "saved"))
    with pytest.raises(InputError, match=rf"holds the splits train, test: pass one, such as {tmp_path}/saved/train"):
        make_plan(tmp_path / "saved", run=tmp_path / "run")
    make_plan(tmp_path / "saved" / "test", run=tmp_path / "run")
    (tmp_path / "data").mkdir()
    for name, split in both.items():
        split.to_parquet(str(tmp_path / "data" / f"{name}-00000-of-00001.parquet"))
    with pytest.raises(InputError, match=rf"holds the splits test, train: pass one, such as '{tmp_path}/data/test-\*'"):
        make_plan(tmp_path / "data", run=tmp_path / "other")
    assert make_plan(f"{tmp_path}/data/test-*", run=tmp_path / "other").rows == 5


def test_a_record_that_datasets_did_not_write_is_refused(tmp_path: Path) -> None:
    for text in ("{}", "no json", '{"_data_files": [{}]}'):
        (tmp_path / "state.json").write_text(text)
        with pytest.raises(InputError, match=r"state\.json is not what datasets saves"):
            make_plan(tmp_path, run=tmp_path / "run")


@pytest.mark.parametrize("form", ["stream", "file"])
def test_arrow_files_of_both_kinds_are_read_and_damage_is_told(tmp_path: Path, form: str) -> None:
    table = pa.table({"id": [1, 2, 3], "claim": pa.array(["a", "b", "c"], pa.large_string())})
    path = tmp_path / "claims.arrow"
    with getattr(pa.ipc, f"new_{form}")(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)
    assert read_claims(path)["claim"].to_pylist() == ["a", "b", "c"]
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(InputError, match="cannot be read as Arrow"):
        make_plan(path, run=tmp_path / "other")
    write(path, {"claim": "a"})
    with pytest.raises(InputError, match="is named like Arrow, but its content is JSON"):
        make_plan(path, run=tmp_path / "other")


def test_metadata_that_are_not_those_of_datasets_change_nothing(tmp_path: Path) -> None:
    for number, text in enumerate(
        ('{"info": 3}', "no json", '{"info": {"features": {"gone": {"_type": "ClassLabel"}}}}')
    ):
        table = pa.table({"claim": ["a"], "label": [1]}).replace_schema_metadata({"huggingface": text})
        pq.write_table(table, tmp_path / f"{number}.parquet")
        (tmp_path / str(number)).mkdir()
        make_plan(tmp_path / f"{number}.parquet", run=tmp_path / str(number) / "run")
        assert claims_of(tmp_path / str(number) / "run")["label"].to_pylist() == ["1"]
