"""REF → the folder and the files that make a model."""

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fsctx.coordinator.plan import adapter_files
from fsctx.errors import InputError
from fsctx.protocol.manifest import ContextKind

FAKE = "fake"
_GGUF_MAGIC = b"GGUF"
_BELONGING = (".json", ".txt", ".model", ".safetensors", ".jinja", ".tiktoken")
_TEMPLATES = "additional_chat_templates"
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")
_CONFIG = "config.json"
_CLASSIFIER = "ForSequenceClassification"
_INDEX = "model.safetensors.index.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFiles:
    """Where a model's files are. `paths` are relative to `origin`, in order."""

    kind: ContextKind
    name: str
    origin: Path
    paths: tuple[str, ...]
    base: "ModelFiles | None" = None
    """The model that these are an adapter for, of kind `lora`."""


def find_model(ref: str, *, fetch: Callable[[str], Path], base: str | None = None) -> ModelFiles:
    """Find a model's files: a Hugging Face folder, a `.gguf` file, `fake`, or else a hub name.

    `fetch` takes a hub name and returns the folder that it was loaded into. A folder with a LoRA adapter is the model
    `base` with it, or the one that it names itself.

    Raises:
        InputError: nothing there, or not a model that an agent can load safely.
    """
    if ref == FAKE:
        return ModelFiles(kind="fake", name=FAKE, origin=Path("/"), paths=())
    path = Path(ref).expanduser()
    if path.is_dir():
        return _folder(path, fetch, base)
    if path.exists():
        return _gguf(path)
    if ref.startswith((".", "/", "~")) or ref.endswith(".gguf") or ref.count("/") > 1:
        raise InputError(f"model {ref} does not exist: pass a model folder, a .gguf file or a hub name")
    return _folder(fetch(ref), fetch, base)


NO_FILES = ModelFiles(kind="none", name="none", origin=Path("/"), paths=())
"""What an application works with that needs no model."""


def find_files(ref: str, *, fetch: Callable[[str], Path]) -> ModelFiles:
    """Find what an application is given as its model: any file, all files of a folder but hidden ones, or a hub name.

    Raises:
        InputError: nothing there.
    """
    path = Path(ref).expanduser()
    if path.is_file():
        path = path.absolute()
        return ModelFiles(kind="file", name=path.stem, origin=path.parent, paths=(path.name,))
    if not path.is_dir() and (path.exists() or ref.startswith((".", "/", "~")) or ref.count("/") > 1):
        raise InputError(f"model {ref} is neither a file nor a folder: pass what the application loads")
    folder = (path if path.is_dir() else fetch(ref)).absolute()
    with _readable(folder):
        found = (one.relative_to(folder) for one in folder.rglob("*") if one.is_file())
        paths = tuple(sorted(one.as_posix() for one in found if not any(part.startswith(".") for part in one.parts)))
    if not paths:
        raise InputError(f"model folder {folder} is empty: pass what the application loads")
    return ModelFiles(kind="folder", name=_folder_name(folder), origin=folder, paths=paths)


def _gguf(path: Path) -> ModelFiles:
    with _readable(path), open(path, "rb") as file:
        head = file.read(len(_GGUF_MAGIC))
    if head != _GGUF_MAGIC:
        raise InputError(
            f"model {path} is no GGUF file (it begins with {head!r}): pass a .gguf file, or the folder of a model"
        )
    path = path.absolute()
    return ModelFiles(kind="gguf", name=path.stem, origin=path.parent, paths=(path.name,))


def _folder(folder: Path, fetch: Callable[[str], Path], base: str | None) -> ModelFiles:
    folder = folder.absolute()
    with _readable(folder):
        paths = tuple(sorted(_belonging(folder)))
    if adapter_files.CONFIG in paths:
        return _adapted(folder, paths, fetch, base)
    if _CONFIG not in paths:
        raise InputError(f"model folder {folder} has no {_CONFIG}: pass the folder that holds it")
    if not any(path.endswith(".safetensors") for path in paths):
        raise InputError(_no_weights(folder))
    _check_index(folder, paths)
    is_classifier = _CLASSIFIER in str(_json(folder / _CONFIG).get("architectures"))
    kind: ContextKind = "classifier" if is_classifier else "hf"
    return ModelFiles(kind=kind, name=_folder_name(folder), origin=folder, paths=paths)


def _adapted(folder: Path, paths: tuple[str, ...], fetch: Callable[[str], Path], base: str | None) -> ModelFiles:
    """Return a model together with the adapter in a folder."""
    config = _json(folder / adapter_files.CONFIG)
    adapter_files.check_adapter(folder, paths, config)
    ref = base or adapter_files.base_of(config)
    if not ref:
        raise InputError(f"adapter {folder} does not say which model it is for: pass it with --base")
    try:
        model = find_model(ref, fetch=fetch)
    except InputError as error:
        raise InputError(f"adapter {folder} is for {ref} (--base REF says otherwise): {error}") from None
    of_model = _json(model.origin / _CONFIG) if _CONFIG in model.paths else {}
    adapter_files.check_base(folder, ref, kind=model.kind, config=of_model)
    return ModelFiles(
        kind="lora",
        name=f"{model.name}+{_folder_name(folder)}",
        origin=folder,
        paths=paths,
        base=model,
    )


def _belonging(folder: Path) -> Iterator[str]:
    for path in folder.iterdir():
        if path.name.endswith(_BELONGING) and path.is_file():
            yield path.name
    for path in folder.glob(f"{_TEMPLATES}/*.jinja"):
        yield f"{_TEMPLATES}/{path.name}"


def _no_weights(folder: Path) -> str:
    pickles = sorted(path.name for pattern in _PICKLES for path in folder.glob(pattern))
    if not pickles:
        return f"model folder {folder} has no *.safetensors: pass a folder with weights"
    return (
        f"model folder {folder} has its weights as pickles only ({', '.join(pickles[:3])}), which can run code: "
        "convert them once with AutoModelForCausalLM.from_pretrained(FOLDER).save_pretrained(NEW), "
        "and copy the tokenizer's files to NEW"
    )


def _check_index(folder: Path, paths: tuple[str, ...]) -> None:
    """Check that all parts of divided weights are there."""
    if _INDEX not in paths:
        return
    try:
        parts = set(json.loads((folder / _INDEX).read_bytes())["weight_map"].values())
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InputError(f"{folder / _INDEX} is not an index of weights: fetch the model again") from None
    missing = sorted(parts - set(paths))
    if missing:
        raise InputError(
            f"model folder {folder} lacks {len(missing)} of its {len(parts)} weight files (first: {missing[0]}): "
            "fetch the model again"
        )


def _json(path: Path) -> dict[str, Any]:
    with _readable(path):
        data = path.read_bytes()
    try:
        config = json.loads(data)
    except ValueError:
        config = None
    if not isinstance(config, dict):
        raise InputError(f"{path} is not a model's configuration: fetch the model again")
    return config


@contextlib.contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(f"model {path} cannot be read ({error.strerror}): check its mode and its files") from None


def _folder_name(folder: Path) -> str:
    """Return a folder's base name; in the hub's cache, where that is a commit, the model's own."""
    cached = folder.parent.parent.name
    if folder.parent.name == "snapshots" and cached.startswith("models--"):
        return cached.rpartition("--")[2]
    return os.path.basename(os.path.normpath(folder)) or "model"
