# SPDX-License-Identifier: Apache-2.0
"""Transactions that one side opens and the other finishes: this project and a real broker.

The store goes back and forth. Ours opens, the broker checks and ends; the broker opens, ours
checks and ends. At last consumers of the broker get each committed message once.
"""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack

import pytest

from store_core import Message, MessageStore, MessageStoreConfig, StoreSnapshot
from store_core.layout import TRANSACTION_COMMIT_TYPE
from store_core.tools.check.store_check import check_store
from store_core.topics import HALF_TOPIC, OP_TOPIC
from store_core.transaction.open_halves import find_open_halves
from store_core.transaction.transactional_message_service import TransactionalMessageService
from store_core.transaction_forms import TransactionState
from tests.interop import java_cluster
from tests.interop.java_cluster import RELEASES, Broker

pytestmark = pytest.mark.interop

_TOPIC, _GROUP, _QUEUES = "payments", "payers", 2
_OURS, _THEIRS = 24, 12
_SETTINGS = {
    "mappedFileSizeCommitLog": 65_536,
    "mappedFileSizeConsumeQueue": 800,
    "maxHashSlotNum": 125,
    "maxIndexNum": 500,
    "transactionTimeOut": 1000,
    "transactionCheckInterval": 1000,
    "transactionCheckMax": 1000,  # the broker begins to count before a producer connects
    "transactionOpBatchInterval": 300,
}
_ANSWERS = {
    "commit": TransactionState.COMMIT_MESSAGE,
    "rollback": TransactionState.ROLLBACK_MESSAGE,
}


class PingPong:
    """One store that both sides open in turn."""

    def __init__(self, release, directory):
        self.release, self._directory = release, directory
        self.root = directory / "store"
        self.settings = {
            **_SETTINGS,
            "listenPort": java_cluster.free_port(),
            "brokerIP1": "127.0.0.1",
        }
        texts = {key: str(value) for key, value in self.settings.items()}
        texts.update(storePathRootDir=str(self.root), transactionOpFormat=release[0])
        self.config = MessageStoreConfig.from_properties(texts)
        self.asked = []
        self.served = []

    def open_ours(self):
        """Leave transactions open; this side ends some, one of them after a check of its own."""
        with MessageStore(self.config) as store:
            for queue in range(_QUEUES):  # so that the topic has its queues
                store.put_message(Message(_TOPIC, b"first", queue_id=queue))
            service = TransactionalMessageService(store)
            service.load()
            places = [
                service.prepare_message(_sent(number)).append_result for number in range(_OURS)
            ]
            for number in (0, 1):  # 0 is committed, 1 rolled back
                service.end_transaction(places[number], _ANSWERS[_answer(number)])
            store.wait_for_dispatch()
            service.shutdown()
        assert len(self.opened()) == _OURS - 2

    def start(self, expected, **options):
        """Start a broker on the store."""
        directory = self._directory / f"java{len(self.served)}"
        given = {
            "wait": "40",
            "expect": f"{_TOPIC}={expected}",
            "answer": f"{_GROUP}:{_TOPIC}",
            **options,
        }
        return Broker(self.root, directory, self.release, self.settings, given)

    def end_theirs(self):
        """Check and end the transactions that the broker left open."""

        def ask(half):
            self.asked.append(half)
            return _ANSWERS[half.properties["answer"]]

        with MessageStore(self.config) as store:
            service = TransactionalMessageService(store, ask)
            service.load()
            while store.clock() <= _newest(store) + self.config.transaction_time_out:
                store.wait_for_dispatch()
            service.check()
            store.wait_for_dispatch()
            service.shutdown()

    def opened(self):
        """Return the queue offsets of open half messages, according to the files."""
        with StoreSnapshot(self.root, self.config) as snapshot:
            return find_open_halves(snapshot, 0, 0).open_queue_offset.tolist()

    def delivered(self):
        """Return how often each message is in its topic, and whether a commit put it there."""
        with StoreSnapshot(self.root, self.config) as snapshot:
            report = check_store(snapshot)
            assert report.is_good, report.findings
            found = Counter()
            for queue in range(_QUEUES):
                for columns in snapshot.queue_columns(_TOPIC, queue, 0, 1 << 40):
                    bodies = columns.column("body").to_pylist()
                    flags = columns.frames.column("sys_flag").tolist()
                    found.update(zip(bodies, flags))
            return found


def _newest(store):
    times = [
        int(columns.frames.column("born_timestamp").max())
        for columns in store.queue_columns(HALF_TOPIC, 0, 0, 1 << 40)
    ]
    return max(times)


def _answer(number):
    return "commit" if number % 3 != 1 else "rollback"


def _sent(number):
    return Message(
        _TOPIC,
        b"of ours %d" % number,
        queue_id=number % _QUEUES,
        tags="tx",
        keys=[f"A{number}"],
        unique_key=f"7F000001000018B4AAC2000000{number:06d}",
        properties={"TRAN_MSG": "true", "PGROUP": _GROUP, "answer": _answer(number)},
    )


def _committed_by_ours():
    return [b"of ours %d" % n for n in range(_OURS) if _answer(n) == "commit"]


def _committed_by_theirs():
    return [b"of the broker %d" % n for n in range(_THEIRS) if n % 3 != 2]


@pytest.fixture(scope="module")
def games(tmp_path_factory):
    games = {r: PingPong(r, tmp_path_factory.mktemp(r.replace(".", "_"))) for r in RELEASES}
    for release in RELEASES:
        java_cluster.build(release)
    ours = len(_committed_by_ours()) + _QUEUES
    _round(games, ours, before=PingPong.open_ours, prepare=f"{_GROUP}:{_TOPIC}={_THEIRS}", keep="2")
    _round(games, ours + len(_committed_by_theirs()), before=PingPong.end_theirs)
    return games


def _round(games, expected, before, **options):
    with ExitStack() as stack:
        brokers = {}
        for release, game in games.items():
            before(game)
            brokers[release] = stack.enter_context(game.start(expected, **options))
        for release, broker in brokers.items():
            games[release].served.append(broker.wait())


@pytest.fixture(params=RELEASES)
def game(request, games):
    return games[request.param]


def test_the_broker_finishes_ours(game):
    first = game.served[0]
    assert first.ok, first.said
    checked = Counter(event["id"] for event in first.events_of("checked"))
    left = {_sent(number).unique_key for number in range(2, _OURS)}
    assert set(checked) == left
    assert {event["topic"] for event in first.events_of("checked")} == {_TOPIC}


def test_ours_finishes_the_brokers(game):
    assert len(game.asked) == _THEIRS
    assert {half.topic for half in game.asked} == {_TOPIC}
    assert {half.properties["TRANSACTION_CHECK_TIMES"] for half in game.asked} == {"1"}


def test_each_message_is_delivered_once(game):
    last = game.served[1]
    assert last.ok, last.said
    assert last.events_of("checked") == []
    wanted = Counter({(b"first", 0): _QUEUES})
    for body in (*_committed_by_ours(), *_committed_by_theirs()):
        wanted[body, TRANSACTION_COMMIT_TYPE] = 1
    assert game.delivered() == wanted
    pulled = Counter(row["body_sha256"] for row in last.received if row["mode"] == "PULL")
    assert sum(pulled.values()) == sum(wanted.values())
    assert len(pulled) == len(wanted)


def test_nothing_is_open(game):
    assert game.opened() == []
    with StoreSnapshot(game.root, game.config) as snapshot:
        bodies = [
            body
            for columns in snapshot.queue_columns(OP_TOPIC, 0, 0, 1 << 40)
            for body in columns.column("body").to_pylist()
        ]
    assert any(b"," in body for body in bodies) == (game.release[0] == "5")
