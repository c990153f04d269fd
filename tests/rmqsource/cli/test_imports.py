# SPDX-License-Identifier: Apache-2.0
"""The modules that the command loads, which take most of its time until it answers or serves."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent.parent
CODE = """
import sys
from rmqsource.cli import main
try:
    main()
finally:
    print("loaded:", *sorted({"pandas", "pyarrow", "pyspark"} & set(sys.modules)))
"""


def test_serve_loads_neither_arrow_nor_spark(tmp_path: Path) -> None:
    arguments = ["serve", str(tmp_path / "store"), "--port", "0", "--with-namesrv", "0"]
    with subprocess.Popen(
        [sys.executable, "-c", CODE, *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        said = next((line for line in process.stderr if "ready after" in line), "never ready")
        process.terminate()
        out, errors = process.communicate(timeout=60)
    assert (process.returncode, out.splitlines()[-1]) == (0, "loaded:"), (said, errors)


def test_help_loads_neither_arrow_nor_spark() -> None:
    command = [sys.executable, "-c", CODE, "messages", "--help"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "loaded:"
