"""The Hugging Face hub: names of models → folders on this machine."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fsctx.errors import InputError

_CONFIG = "config.json"
_PATTERNS = ["*.json", "*.txt", "*.model", "*.safetensors", "*.jinja", "*.tiktoken"]


def fetch_model(ref: str) -> Path:
    """Return the folder of a model by its hub name (`owner/name` or `owner/name@revision`), loading what is not cached.

    Raises:
        InputError: offline and not cached, or no such model.
    """
    return _ask(
        ref,
        lambda hub, name, revision: hub.snapshot_download(
            name, revision=revision, allow_patterns=_PATTERNS, ignore_patterns=["*/*.safetensors"]
        ),
    )


def fetch_config(ref: str) -> Path:
    """Return the config.json of a model by its hub name, loading nothing else.

    Raises:
        InputError: offline and not cached, or no such model.
    """
    fetched = _ask(
        ref, lambda hub, name, revision: hub.snapshot_download(name, revision=revision, allow_patterns=[_CONFIG])
    )
    return fetched / _CONFIG


def _ask(ref: str, load: Callable[[Any, str, str | None], str]) -> Path:
    try:
        import huggingface_hub
    except ImportError:
        raise InputError(
            f"model {ref} is neither a folder nor a file here, and the hub needs the package huggingface_hub: "
            "install fsctx[hf], or pass a folder"
        ) from None
    name, _, revision = ref.partition("@")
    try:
        return Path(load(huggingface_hub, name, revision or None))
    except Exception as error:  # noqa: BLE001 - the hub's client raises whatever its HTTP library does
        seen = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InputError(
            f"model {ref} is neither a folder nor a file here, and the hub did not give it ({seen}): "
            "check the name and the network, or pass a folder"
        ) from None
