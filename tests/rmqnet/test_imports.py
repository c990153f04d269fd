"""What a process loads that is a broker and a name server: that is most of its start."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
CODE = """
import sys

import rmqnet
from rmqnet import Message, Producer, PullConsumer


def check(when):
    loaded = {"pandas", "pyarrow", "pyspark"} & set(sys.modules)
    assert not loaded, (when, loaded)


with rmqnet.serve(sys.argv[1]) as cluster:
    check("at the start")
    with Producer("g", cluster.namesrv_addr) as producer:
        queue = producer.send(Message("orders", b"one espresso", tags="paid", keys="k1")).queue
    with PullConsumer("h", cluster.namesrv_addr) as consumer:
        consumer.assign([queue])
        consumer.seek_to_begin()
        assert [message.body for message in consumer.poll(timeout_s=30)] == [b"one espresso"]
    assert cluster.controller.broker.store.wait_for_dispatch()
    check("when a message came and was consumed")
check("at the end")
"""


def test_a_broker_without_much_to_do_does_not_load_arrow(tmp_path):
    command = [sys.executable, "-c", CODE, str(tmp_path / "store")]
    subprocess.run(command, check=True, cwd=ROOT)
