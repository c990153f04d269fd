# SPDX-License-Identifier: Apache-2.0
"""Make the pictures of the README anew from the bundled store: ``python docs/make_pictures.py``.

Needs the extras ``cli`` and ``notebook``, and Chromium. Spark is not started.
"""

from __future__ import annotations

import os
import pty
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile
from fcntl import ioctl
from pathlib import Path
from termios import TIOCSWINSZ

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from rmqsource.demo import unpack_store

DOCS = Path(__file__).resolve().parent
COLUMNS = 116
COMMANDS = (
    "rocketmq-store messages demo/store --topic orders --limit 4",
    "rocketmq-store trace demo/store --key R0 --config demo/broker.conf",
    "rocketmq-store check demo/store --config demo/broker.conf",
)
REPORT = "rocketmq-store report demo/store -o report.html --config demo/broker.conf"
WINDOW = (1200, 1000)
BROWSERS = ("chromium", "google-chrome", "chromium-browser")


def main() -> None:
    """Write ``terminal.svg`` and ``report.png`` beside this file."""
    with tempfile.TemporaryDirectory() as folder:
        unpack_store(f"{folder}/demo")
        terminal_picture(folder, DOCS / "terminal.svg")
        report_picture(folder, DOCS / "report.png")


def terminal_picture(folder: str, target: Path) -> None:
    """Run the commands on a terminal and draw what it shows."""
    with Path(os.devnull).open("w") as nowhere:
        console = Console(record=True, width=COLUMNS, file=nowhere, legacy_windows=False)
        for command in COMMANDS:
            console.print(Text(f"$ {command}", style="bold green"))
            console.print(Text.from_ansi(on_terminal(command, folder)), soft_wrap=True)
    drawn = console.export_svg(title="rocketmq-store", theme=MONOKAI, unique_id="terminal")
    target.write_text("\n".join(line.rstrip() for line in drawn.splitlines()) + "\n", "utf-8")


def on_terminal(command: str, folder: str) -> str:
    """Return what a command writes to a terminal of so many columns; progress goes elsewhere."""
    ours, its = pty.openpty()
    ioctl(its, TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
    with subprocess.Popen(
        arguments(command),
        cwd=folder,
        env=environment(),
        stdin=its,
        stdout=its,
        stderr=subprocess.DEVNULL,
    ) as process:
        os.close(its)
        shown = read_all(ours)
    if process.returncode:
        raise SystemExit(f"{command}: exit code {process.returncode}")
    return shown.decode().replace("\r\n", "\n").rstrip("\n") + "\n"


def arguments(command: str) -> list[str]:
    """Return how to start a command with this Python, whatever is on the path."""
    return [sys.executable, "-m", "rmqsource.cli", *shlex.split(command)[1:]]


def environment() -> dict[str, str]:
    """Return the environment of a terminal with colours, and of this clone's package."""
    path = os.pathsep.join(filter(None, [str(DOCS.parent), os.environ.get("PYTHONPATH", "")]))
    given = {
        name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "COLUMNS"}
    }
    return {**given, "PYTHONPATH": path, "TERM": "xterm-256color"}


def read_all(terminal: int) -> bytes:
    """Read until the other side of a terminal is closed, which Linux tells as an error."""
    parts = []
    while True:
        try:
            part = os.read(terminal, 65536)
        except OSError:
            part = b""
        if not part:
            os.close(terminal)
            return b"".join(parts)
        parts.append(part)


def report_picture(folder: str, target: Path) -> None:
    """Write the report page and photograph its beginning."""
    subprocess.run(arguments(REPORT), cwd=folder, env=environment(), check=True)
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        raise SystemExit(f"none of {', '.join(BROWSERS)} is installed")
    subprocess.run(
        [
            browser,
            "--headless",
            "--no-sandbox",  # the page is our own; root has no sandbox
            "--disable-gpu",
            "--hide-scrollbars",
            "--blink-settings=preferredColorScheme=1",  # light, whatever the desktop is
            "--window-size={},{}".format(*WINDOW),
            f"--screenshot={target}",
            f"file://{folder}/report.html",
        ],
        stderr=subprocess.DEVNULL,
        check=True,
    )


if __name__ == "__main__":
    main()
