"""What an advice rests on: a model's dimensions, by its configuration alone, and what was measured."""

import json
from collections.abc import Callable
from pathlib import Path

from fsctx.coordinator.advise.gguf_file import config_of_gguf
from fsctx.errors import Damaged, InputError
from fsctx.protocol import codec
from fsctx.protocol.measured import Measured
from fsctx.protocol.shapes import ModelShape, shape_of

_CONFIG = "config.json"


def find_shape(ref: str, *, fetch: Callable[[str], Path]) -> ModelShape:
    """Return the dimensions of a model folder, a config.json, a `.gguf` file, or else a hub name.

    `fetch` takes a hub name and returns where its config.json is.

    Raises:
        InputError: nothing there, or it tells no dimensions.
    """
    path = Path(ref).expanduser()
    if path.suffix == ".gguf" and path.is_file():
        return shape_of(config_of_gguf(path), where=ref)
    if path.is_dir():
        path = path / _CONFIG
    elif not path.exists():
        if ref.startswith((".", "/", "~")) or ref.count("/") > 1:
            raise InputError(
                f"model {ref} does not exist: pass a model folder, its config.json, a .gguf file or a hub name"
            )
        path = fetch(ref)
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read as a model's configuration ({error}): pass another") from None
    if not isinstance(config, dict):
        raise InputError(f"{path} is not a model's configuration: pass the config.json of one")
    return shape_of(config, where=str(path))


def read_measured(path: Path) -> Measured:
    """Return what `fsctx tune` printed.

    Raises:
        InputError: it is not that.
    """
    try:
        return codec.decode(path.read_bytes(), Measured, where=str(path))
    except (OSError, Damaged) as error:
        raise InputError(f"--measured {path} is not what fsctx tune prints ({error}): measure again") from None
