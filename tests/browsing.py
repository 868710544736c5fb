"""A page in a headless Chromium."""

import shutil
import subprocess
from pathlib import Path

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def browse(place: Path, *options: str, fragment: str = "") -> tuple[str, list[str]]:
    """Open a page; return its document after its scripts ran, and what the console said."""
    common = ["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--virtual-time-budget=2000"]
    profile = f"--user-data-dir={place.parent / 'profile'}"
    command = [str(CHROMIUM), *common, profile, *(options or ("--dump-dom",)), f"{place.as_uri()}{fragment}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]
