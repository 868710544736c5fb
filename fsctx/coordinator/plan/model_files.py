"""REF → the folder and the files that make a model."""

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from fsctx.errors import InputError
from fsctx.protocol.manifest import ContextKind

FAKE = "fake"
_GGUF_MAGIC = b"GGUF"
_BELONGING = (".json", ".txt", ".model", ".safetensors", ".jinja", ".tiktoken")
_TEMPLATES = "additional_chat_templates"
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")
_ADAPTER = "adapter_config.json"
_INDEX = "model.safetensors.index.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFiles:
    """Where a model's files are. `paths` are relative to `origin`, in order."""

    kind: ContextKind
    name: str
    origin: Path
    paths: tuple[str, ...]


def find_model(ref: str, *, fetch: Callable[[str], Path]) -> ModelFiles:
    """Find a model's files: a Hugging Face folder, a `.gguf` file, `fake`, or else a hub name.

    `fetch` takes a hub name and returns the folder that it was loaded into.

    Raises:
        InputError: nothing there, or not a model that an agent can load safely.
    """
    if ref == FAKE:
        return ModelFiles(kind="fake", name=FAKE, origin=Path("/"), paths=())
    path = Path(ref).expanduser()
    if path.is_dir():
        return _folder(path)
    if path.exists():
        return _gguf(path)
    if ref.startswith((".", "/", "~")) or ref.endswith(".gguf") or ref.count("/") > 1:
        raise InputError(f"model {ref} does not exist: pass a model folder, a .gguf file or a hub name")
    return _folder(fetch(ref))


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


def _folder(folder: Path) -> ModelFiles:
    with _readable(folder):
        paths = tuple(sorted(_belonging(folder)))
    if _ADAPTER in paths:
        raise InputError(
            f"model folder {folder} holds a LoRA adapter ({_ADAPTER}), which no agent applies: merge it into its model"
            " once with peft's merge_and_unload() and save_pretrained(NEW), copy its tokenizer's files there, pass NEW"
        )
    if "config.json" not in paths:
        raise InputError(f"model folder {folder} has no config.json: pass the folder that holds it")
    if not any(path.endswith(".safetensors") for path in paths):
        raise InputError(_no_weights(folder))
    _check_index(folder, paths)
    return ModelFiles(kind="hf", name=_folder_name(folder.absolute()), origin=folder.absolute(), paths=paths)


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
