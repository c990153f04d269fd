"""What a process loads that is a broker and a name server: that is most of its start."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
CHECK = """
import sys
def check(when):
    loaded = {"pandas", "pyarrow", "pyspark"} & set(sys.modules)
    assert not loaded, (when, loaded)
"""
START = """
import rmqnet
with rmqnet.serve(sys.argv[1]):
    check("at the start")
check("at the stop")
"""


def run_alone(code, *arguments):
    subprocess.run([sys.executable, "-c", code, *map(str, arguments)], check=True, cwd=ROOT)


def test_a_broker_starts_without_arrow(tmp_path):
    run_alone(CHECK + START, tmp_path / "store")
