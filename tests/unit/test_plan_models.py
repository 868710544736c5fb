"""REF → context records."""

import hashlib
import json
from pathlib import Path

import pytest
from planning import make_plan, manifest_of, offline, quiet

from fsctx.coordinator.plan import contexts
from fsctx.coordinator.plan.contexts import find_models
from fsctx.coordinator.plan.hub import fetch_model
from fsctx.coordinator.plan.model_files import find_model
from fsctx.errors import InputError
from fsctx.protocol.manifest import read_context
from fsctx.store import PosixStore


def model_folder(folder: Path, weights: bytes = b"weights") -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(weights)
    (folder / "README.md").write_text("not a part")
    (folder / "training.bin").write_bytes(b"not a part")
    return folder


def test_a_folder_is_the_files_that_belong(tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "m")
    (folder / "onnx").mkdir()
    (folder / "onnx" / "model.safetensors").write_bytes(b"no")
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "tools.jinja").write_text("t")
    assert find_model(str(folder), fetch=offline).paths == (
        "additional_chat_templates/tools.jinja",
        "config.json",
        "model.safetensors",
    )


def test_chunks_are_hashed_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contexts, "CHUNK_BYTES", 4)
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUFabcdef")
    (model,) = find_models([str(path)], fetch=offline, progress=quiet)
    (file,) = model.context.files
    assert file.chunks == tuple(hashlib.sha256(c).hexdigest() for c in (b"GGUF", b"abcd", b"ef"))
    assert (file.path, file.size_bytes, model.context.kind, model.name) == ("m.gguf", 10, "gguf", "m")


def test_the_digest_is_of_the_content_not_of_the_place(tmp_path: Path) -> None:
    one, same, other = (model_folder(tmp_path / n, w) for n, w in (("a", b"1"), ("b", b"1"), ("c", b"2")))
    models = find_models([str(one), str(same), str(other)], fetch=offline, progress=quiet)
    assert [m.name for m in models] == ["a", "c"]
    assert len({m.context.digest for m in models}) == 2


def test_models_of_one_name_are_told_apart_by_their_digests(tmp_path: Path) -> None:
    folders = [model_folder(tmp_path / n / "llama", n.encode()) for n in ("x", "y")]
    models = find_models(map(str, folders), fetch=offline, progress=quiet)
    assert [m.name for m in models] == [f"llama-{m.context.digest[:8]}" for m in models]


def test_a_folder_of_the_hubs_cache_is_followed_and_named_after_the_model(tmp_path: Path) -> None:
    blobs = model_folder(tmp_path / "blobs")
    snapshot = tmp_path / "models--me--tiny-llama" / "snapshots" / "0123abcd"
    snapshot.mkdir(parents=True)
    for name in ("config.json", "model.safetensors"):
        (snapshot / name).symlink_to(blobs / name)
    (model,) = find_models([str(snapshot)], fetch=offline, progress=quiet)
    assert model.name == "tiny-llama"
    assert model.context.size_bytes == len("{}") + len("weights")


def test_a_hub_name_is_fetched(tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "models--me--tiny" / "snapshots" / "0")
    asked: list[str] = []

    def fetch(ref: str) -> Path:
        asked.append(ref)
        return folder

    (model,) = find_models(["me/tiny@v1"], fetch=fetch, progress=quiet)
    assert (asked, model.name) == (["me/tiny@v1"], "tiny")


def test_a_hub_that_cannot_be_reached_is_one_clear_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("huggingface_hub")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(InputError, match="me/no-such-model is neither a folder nor a file here") as caught:
        fetch_model("me/no-such-model")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"model.safetensors": "w"}, "has no config.json"),
        ({"config.json": "{}"}, r"has no \*\.safetensors"),
        ({"config.json": "[]", "model.safetensors": "w"}, r"config\.json is not a model's configuration"),
        ({"config.json": "{}", "pytorch_model.bin": "w"}, r"pickles only \(pytorch_model\.bin\).*save_pretrained"),
        (
            {
                "config.json": "{}",
                "model-1.safetensors": "w",
                "model.safetensors.index.json": json.dumps({"weight_map": {"a": "model-1.safetensors", "b": "gone"}}),
            },
            r"lacks 1 of its 2 weight files \(first: gone\)",
        ),
        (
            {"config.json": "{}", "model.safetensors": "w", "model.safetensors.index.json": "[]"},
            "is not an index of weights",
        ),
    ],
)
def test_a_folder_that_is_no_whole_model_is_refused(tmp_path: Path, files: dict[str, str], said: str) -> None:
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=said):
        find_model(str(tmp_path), fetch=offline)


def adapter_folder(folder: Path, **config: object) -> Path:
    folder.mkdir(parents=True)
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", **config}))
    (folder / "adapter_model.safetensors").write_bytes(b"a few weights")
    return folder


def test_an_adapter_is_the_model_that_it_names_with_its_own_files_beside(tmp_path: Path) -> None:
    base = model_folder(tmp_path / "base")
    refs = [str(adapter_folder(tmp_path / name, base_model_name_or_path=str(base), n=name)) for name in ("a", "b")]
    alone, one, other = (m.context for m in find_models([str(base), *refs], fetch=offline, progress=quiet))
    assert [c.name for c in (alone, one, other)] == ["base", "base+a", "base+b"]
    assert len({c.digest for c in (alone, one, other)}) == 3
    assert (one.kind, one.origin, one.adapter) == ("lora", str(base), str(tmp_path / "a"))
    assert one.files[: len(alone.files)] == alone.files
    added = [file.path for file in one.files[len(alone.files) :]]
    assert added == ["adapter/adapter_config.json", "adapter/adapter_model.safetensors"]


def test_an_adapters_digest_is_of_its_content_not_of_its_place(tmp_path: Path) -> None:
    base = model_folder(tmp_path / "base")
    refs = [str(adapter_folder(tmp_path / name, base_model_name_or_path=str(base))) for name in ("a", "b")]
    assert len(find_models(refs, fetch=offline, progress=quiet)) == 1


def test_the_model_that_adapters_are_for_can_be_said_or_come_from_the_hub(tmp_path: Path) -> None:
    base = model_folder(tmp_path / "models--me--tiny" / "snapshots" / "0")
    adapter = str(adapter_folder(tmp_path / "a", base_model_name_or_path="me/tiny", revision="v1"))
    asked: list[str] = []

    def fetch(ref: str) -> Path:
        asked.append(ref)
        return base

    (hub,) = find_models([adapter], fetch=fetch, progress=quiet)
    (said,) = find_models([adapter], fetch=offline, progress=quiet, base=str(base))
    assert asked == ["me/tiny@v1"]
    assert hub.context == said.context


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({}, r"does not say which model it is for: pass it with --base"),
        (
            {"base_model_name_or_path": "/gone"},
            r"is for /gone \(--base REF says otherwise\): model /gone does not exist",
        ),
        ({"peft_type": "LOHA"}, "is of type LOHA"),
        ({"base_model_name_or_path": "fake"}, r"can't be merged into fake \(fake\)"),
    ],
)
def test_an_adapter_without_a_model_that_it_could_be_merged_into_is_refused(
    tmp_path: Path, config: dict[str, object], said: str
) -> None:
    with pytest.raises(InputError, match=said) as caught:
        find_model(str(adapter_folder(tmp_path / "a", **config)), fetch=offline)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("remove", "add", "said"),
    [
        ("adapter_model.safetensors", "adapter_model.bin", r"a pickle only \(adapter_model\.bin\).*save_pretrained"),
        ("adapter_model.safetensors", "README.md", r"has no adapter_model\.safetensors"),
        ("README.md", "model.safetensors", r"an adapter .* and other weights \(model\.safetensors\)"),
    ],
)
def test_an_adapters_folder_that_is_not_whole_or_holds_more_is_refused(
    tmp_path: Path, remove: str, add: str, said: str
) -> None:
    base = model_folder(tmp_path / "base")
    folder = adapter_folder(tmp_path / "a", base_model_name_or_path=str(base))
    (folder / remove).unlink(missing_ok=True)
    (folder / add).write_bytes(b"")
    with pytest.raises(InputError, match=said):
        find_model(str(folder), fetch=offline)


def test_an_adapter_for_quantised_weights_is_refused(tmp_path: Path) -> None:
    base = model_folder(tmp_path / "base")
    (base / "config.json").write_text('{"quantization_config": {"quant_method": "bitsandbytes"}}')
    with pytest.raises(InputError, match="before it was quantised with --base"):
        find_model(str(adapter_folder(tmp_path / "a", base_model_name_or_path=str(base))), fetch=offline)


def test_a_base_without_an_adapter_is_refused(tmp_path: Path) -> None:
    folder = str(model_folder(tmp_path / "m"))
    with pytest.raises(InputError, match=f"--base {folder} is the model that adapters are for"):
        find_models([folder], fetch=offline, progress=quiet, base=folder)


def test_a_classifier_is_known_as_one(tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "m")
    (folder / "config.json").write_text('{"architectures": ["BertForSequenceClassification"]}')
    assert find_model(str(folder), fetch=offline).kind == "classifier"


@pytest.mark.parametrize("ref", ["./nowhere", "/no/where", "nowhere.gguf", "a/b/c"])
def test_a_path_that_is_not_there_is_never_asked_of_the_hub(ref: str) -> None:
    with pytest.raises(InputError, match="does not exist"):
        find_model(ref, fetch=offline)


def test_a_file_that_is_no_gguf_is_refused(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"oops")
    with pytest.raises(InputError, match=r"is no GGUF file \(it begins with b'oops'\)"):
        find_model(str(tmp_path / "m.gguf"), fetch=offline)


def test_a_sweep_plans_model_by_model_and_stores_claims_once(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("a\nb\n")
    for name in ("t1", "t2"):
        (tmp_path / f"{name}.toml").write_text(f'name = "{name}"\nuser = "{{{{ claim }}}}"\nlabels = ["yes", "no"]\n')
    models = [model_folder(tmp_path / name, name.encode()) for name in ("m1", "m2")]
    templates = [str(tmp_path / f"{name}.toml") for name in ("t1", "t2", "t1")]
    run = tmp_path / "run"
    report = make_plan(
        tmp_path / "x.txt", run=run, models=tuple(map(str, models)), templates=tuple(templates), method="generate"
    )
    manifest = manifest_of(run)
    assert [(t.model, t.template) for t in manifest.tasks] == [("m1", "t1"), ("m1", "t2"), ("m2", "t1"), ("m2", "t2")]
    assert (report.rows, report.tasks, report.units) == (2, 4, 4)
    contexts_read = {read_context(PosixStore(run), t.context).origin for t in manifest.tasks}
    assert contexts_read == {str(model) for model in models}
    assert (run / "templates" / "t1.toml").read_text() == (tmp_path / "t1.toml").read_text()


def test_label_words_that_one_tokenizer_cannot_tell_apart_are_refused(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    words = tokenizers.models.WordLevel({"[UNK]": 0, "yes": 1, "no": 2}, unk_token="[UNK]")
    tokenizer = tokenizers.Tokenizer(words)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    folder = model_folder(tmp_path / "m")
    tokenizer.save(str(folder / "tokenizer.json"))
    (tmp_path / "x.txt").write_text("a\n")
    (tmp_path / "t.toml").write_text(
        'name = "t"\nuser = "{{ claim }}"\nlabels = {A = "maybe", B = "perhaps", C = "no"}\n'
    )
    options = {"models": (str(folder),), "templates": (str(tmp_path / "t.toml"),)}
    with pytest.raises(InputError, match="the words of label A are, in tokens, the beginning of those of B"):
        make_plan(tmp_path / "x.txt", run=tmp_path / "run", **options)
    assert not (tmp_path / "run").exists()
    make_plan(tmp_path / "x.txt", run=tmp_path / "run", method="generate", **options)


def test_small_models_have_small_chunks_so_that_nodes_have_something_to_give_early() -> None:
    mib = 1 << 20
    sizes = {0: 1, mib: 1, 93 * mib: 2, 256 * mib: 4, 2048 * mib: 32, 10_000 * mib: 32}
    assert {size: contexts.chunk_bytes_for(size) // mib for size in sizes} == sizes
