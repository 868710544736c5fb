"""Folders of Hugging Face's `datasets`: what `save_to_disk` writes, and Parquet by splits."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fsctx.errors import InputError

_STATE, _SPLITS = "state.json", "dataset_dict.json"
_SPLIT = re.compile(r"^(?P<split>.+)-\d{5}-of-\d{5}\.parquet$")


def saved_dataset(folder: Path) -> list[Path] | None:
    """Return the files of a saved data set, in its order; None where the folder is none.

    Raises:
        InputError: it holds several splits, or its record cannot be read.
    """
    if (folder / _SPLITS).is_file():
        splits = _read(folder / _SPLITS, "splits")
        first = splits[0] if splits else "train"
        raise InputError(f"{folder} holds the splits {', '.join(map(str, splits))}: pass one, such as {folder}/{first}")
    if not (folder / _STATE).is_file():
        return None
    return [folder / str(file["filename"]) for file in _read(folder / _STATE, "_data_files")]


def check_one_split(folder: Path, files: Sequence[Path]) -> None:
    """Refuse to mix the splits of a data set, where files are named by them.

    Raises:
        InputError: there are several.
    """
    splits = sorted({found["split"] for file in files if (found := _SPLIT.match(file.name))})
    if len(splits) > 1:
        raise InputError(f"{folder} holds the splits {', '.join(splits)}: pass one, such as '{folder}/{splits[0]}-*'")


def _read(path: Path, key: str) -> list[Any]:
    try:
        found = json.loads(path.read_bytes())[key]
        if isinstance(found, list) and all(key != "_data_files" or "filename" in one for one in found):
            return found
    except (OSError, ValueError, KeyError, TypeError):
        pass
    raise InputError(f"{path} is not what datasets saves: save the data set again")
