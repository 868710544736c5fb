"""The page in a real browser: it renders, says nothing on the console, and its filters work."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from browsing import CHROMIUM, browse
from click.testing import CliRunner
from fabricate import add_agent, fabricate, finish_unit, gold_of
from histories import event, tell
from html_tables import Tables

from fsctx.cli.report import report

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here: apt-get install chromium"),
]

EVIL = '<img src="x" onerror="document.title = \'broken into\'">'

PROBE = "<script>{}</script></body>"
CSP = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The page of a run of two tasks and two agents, one of which was killed."""
    folder = tmp_path_factory.mktemp("browser")
    run = fabricate(folder / "run", n_rows=40, unit_rows=20, models=("small", EVIL))
    for unit in range(run.geometry.n_units):
        right = {row: {"verdict": gold_of(run, row)} for row in range(40)}
        finish_unit(run, unit, changed=right if unit >= 2 else None, agent="killed" if unit else "other")
    for agent, host in (("killed", "node-1"), ("other", "node-2")):
        add_agent(run, agent, host=host)
        tell(
            run,
            agent,
            [event(0, "started"), event(9, "loaded", seconds=3), event(95e3, "inferred", seconds=20, rows=9)],
        )
    place = folder / "page.html"
    done = CliRunner().invoke(report, [str(run.root), "-o", str(place)], catch_exceptions=False)
    assert done.exit_code == 0
    return place


def probed(place: Path, script: str) -> Path:
    """Return a copy of a page with a script at its end; the page's own policy would not let it run."""
    page = CSP.sub("", place.read_text(encoding="utf-8"))
    copy = place.with_name("probed.html")
    copy.write_text(page.replace("</body>", PROBE.format(script)), encoding="utf-8")
    return copy


def shown(document: str, body: str) -> list[str]:
    """Return the first cells of a table's lines that are not hidden."""
    (lines,) = re.findall(rf'<tbody id="{body}">(.*?)</tbody>', document, re.DOTALL)
    visible = re.sub(r'<tr[^>]* hidden="">.*?</tr>', "", lines, flags=re.DOTALL)
    return [line[0] for line in Tables(f'<tbody id="x">{visible}</tbody>').bodies["x"]]


def test_it_renders_and_the_console_says_nothing(page):
    document, console = browse(page)
    assert console == []
    assert "Shown: all tasks; 2 of 2 lines about agents." in document
    assert shown(document, "ranking") == ["1", "2"]
    assert shown(document, "agents") == ["killednode-1 NVIDIA A10", "othernode-2 NVIDIA A10"]


def test_an_error_of_a_script_would_be_seen(page):
    _, console = browse(probed(page, "nothing.here()"))
    assert len(console) == 1


def test_what_is_in_the_address_is_filtered(page):
    document, console = browse(page, fragment="#task=0&agent=NODE-2")
    assert console == []
    assert shown(document, "ranking") == ["2"]
    assert shown(document, "agents") == ["othernode-2 NVIDIA A10"]
    assert "Shown: small, fever; 1 of 2 lines about agents." in document


def test_choosing_filters_and_is_remembered_in_the_address(page):
    choose = """
      const task = document.querySelector("[name=task]");
      task.value = "1";
      task.dispatchEvent(new Event("input", {bubbles: true}));
      const agent = document.querySelector("[name=agent]");
      agent.value = "killed";
      agent.dispatchEvent(new Event("input", {bubbles: true}));
      document.title = location.hash;
    """
    document, console = browse(probed(page, choose))
    assert console == []
    assert shown(document, "ranking") == ["1"]
    assert shown(document, "agents") == ["killednode-1 NVIDIA A10"]
    assert "<title>#task=1&amp;agent=killed</title>" in document


def test_show_all_shows_all_again(page):
    document, _ = browse(probed(page, 'document.querySelector("[type=reset]").click()'), fragment="#task=1&agent=none")
    assert shown(document, "ranking") == ["1", "2"]
    assert len(shown(document, "agents")) == 2


def test_an_address_that_names_no_task_shows_all(page):
    document, console = browse(page, fragment="#task=99")
    assert console == []
    assert shown(document, "ranking") == ["1", "2"]


def test_markup_in_names_is_text_and_foreign_scripts_do_not_run(page, tmp_path):
    document, _ = browse(page)
    assert "<title>run: verdicts</title>" in document
    intruded = tmp_path / "intruded.html"
    intruded.write_text(page.read_text().replace("</body>", PROBE.format("document.title = 'broken into'")))
    document, console = browse(intruded)
    assert "<title>run: verdicts</title>" in document
    assert "Content Security Policy" in console[0]


def said_at(width: int, page: Path, script: str) -> str:
    """Return what a script says of a page, as an expression, in a window of some width."""
    inner = probed(page, f'parent.postMessage({script}, "*")')
    outer = inner.with_name("outer.html")
    outer.write_text(
        f'<iframe src="{inner.as_uri()}" width="{width}" height="800" frameborder="0"></iframe>'
        "<script>onmessage = (event) => { document.title = event.data; }</script>"
    )
    return re.findall("<title>(.*)</title>", browse(outer)[0])[0]


def test_a_phone_scrolls_tables_and_not_the_page(page):
    root = "document.documentElement"
    assert said_at(390, page, f"{root}.scrollWidth - {root}.clientWidth + ' px too wide'") == "0 px too wide"


@pytest.mark.parametrize("width", [390, 1280])
def test_times_along_an_axis_stand_apart(page, width):
    touching = """(() => {
      const axes = [...document.querySelectorAll(".x, .ends")].map((axis) => [...axis.children]);
      const ends = (label) => label.getBoundingClientRect();
      const touch = (axis) => axis.slice(1).some((label, i) => ends(label).left - ends(axis[i]).right < 4);
      return `${axes.filter(touch).length} of ${axes.length}`;
    })()"""
    assert said_at(width, page, touching) == "0 of 5"


def test_it_prints(page, tmp_path):
    browse(page, f"--print-to-pdf={tmp_path / 'page.pdf'}")
    assert (tmp_path / "page.pdf").read_bytes().startswith(b"%PDF")


@pytest.mark.skipif(shutil.which("pdftotext") is None, reason="reads the paper with pdftotext (poppler-utils)")
def test_what_is_folded_away_on_the_screen_is_printed(page, tmp_path):
    browse(page, f"--print-to-pdf={tmp_path / 'page.pdf'}")
    printed = subprocess.run(["pdftotext", tmp_path / "page.pdf", "-"], capture_output=True, text=True, check=True)
    assert "Labels of each task" in printed.stdout
