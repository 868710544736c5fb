"""Puts the site's pages together for `make docs`: what is written in docs/, and what is generated from the program.

    python docs/pages.py build/docs

The command line's reference comes from the commands' own helps, the home page is README.md. Pages that `zensical.toml`
does not name yet are added to its navigation, so that none is lost.
"""

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from fsctx.cli import COMMANDS, cli
from fsctx.cli.manual import EXIT_CODES

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


def command_line() -> str:
    """Return the reference of the command line."""
    codes = "\n".join(f"| {code} | {meaning} |" for code, meaning in EXIT_CODES.items())
    head = f"# Command line\n\n| exit code | meaning |\n|---|---|\n{codes}\n"
    note = "\nIn a batch job, agents end with 78 instead of 2.\n"
    return head + note + "".join(f"\n## {name}\n\n```text\n{text}\n```\n" for name, text in helps())


def helps() -> Iterator[tuple[str, str]]:
    """Yield every command, those of groups too, and its help."""
    top = click.Context(
        cli, info_name="fsctx", max_content_width=100, terminal_width=100, help_option_names=["-h", "--help"]
    )
    for name in COMMANDS:
        command = cli.get_command(top, name)
        if command is None:
            raise LookupError(name)
        context = click.Context(command, parent=top, info_name=name)
        yield f"fsctx {name}", command.get_help(context)
        for sub, inner in getattr(command, "commands", {}).items():
            yield f"fsctx {name} {sub}", inner.get_help(click.Context(inner, parent=context, info_name=sub))


def decisions() -> str:
    """Return the list of the decision records."""
    lines = ["# Decisions", "", "What was chosen against what, and what was tried in vain.", ""]
    for path in sorted((DOCS / "decisions").glob("0*.md")):
        title = path.read_text(encoding="utf-8").splitlines()[0].lstrip("# ")
        lines.append(f"- [{title}]({path.name})")
    return "\n".join(lines) + "\n"


def home() -> str:
    """Return README.md with the links of a page in docs/."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    text = text.replace("](docs/decisions)", "](decisions/index.md)").replace("](docs/", "](")
    return text.replace("](CHANGELOG.md)", "](changelog.md)").replace(
        "](LICENSE)", "](https://www.apache.org/licenses/LICENSE-2.0)"
    )


def within(text: str) -> str:
    """Return a page without links out of the site: README.md is its home, the rest of the checkout is no part of it."""
    return re.sub(r"\[([^\]]*)\]\(\.\./[^)]*\)", r"\1", text.replace("](../README.md", "](index.md"))


def configuration(pages: list[str]) -> str:
    """Return zensical.toml with the pages that its navigation lacks."""
    text = (ROOT / "zensical.toml").read_text(encoding="utf-8")
    named = set(re.findall(r'"([\w./-]+\.md)"', text))
    more = ", ".join(f'"{page}"' for page in pages if page not in named and "/0" not in page)
    return text.replace("# what is not named yet", f'{{ "More" = [{more}] }},' if more else "")


def write(folder: Path) -> None:
    """Write all pages into a folder, and the configuration beside it."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(DOCS, folder, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    for page in folder.glob("*.md"):
        page.write_text(within(page.read_text(encoding="utf-8")), encoding="utf-8")
    generated = {
        "index.md": home(),
        "command-line.md": command_line(),
        "decisions/index.md": decisions(),
        "changelog.md": (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"),
    }
    for name, text in generated.items():
        (folder / name).write_text(text, encoding="utf-8")
    pages = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.md"))
    (folder.parent / "zensical.toml").write_text(configuration(pages), encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
