"""The Hugging Face hub: names of models → folders on this machine."""

from pathlib import Path

from fsctx.errors import InputError

_PATTERNS = ["*.json", "*.txt", "*.model", "*.safetensors", "*.jinja", "*.tiktoken"]


def fetch_model(ref: str) -> Path:
    """Return the folder of a model by its hub name (`owner/name` or `owner/name@revision`), loading what is not cached.

    Raises:
        InputError: offline and not cached, or no such model.
    """
    try:
        import huggingface_hub
    except ImportError:
        raise InputError(
            f"model {ref} is neither a folder nor a file here, and the hub needs the package huggingface_hub: "
            "install fsctx[hf], or pass a folder"
        ) from None
    name, _, revision = ref.partition("@")
    try:
        return Path(
            huggingface_hub.snapshot_download(
                name, revision=revision or None, allow_patterns=_PATTERNS, ignore_patterns=["*/*.safetensors"]
            )
        )
    except Exception as error:  # noqa: BLE001 - the hub's client raises whatever its HTTP library does
        seen = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InputError(
            f"model {ref} is neither a folder nor a file here, and the hub did not give it ({seen}): "
            "check the name and the network, or pass a folder"
        ) from None
