# SPDX-License-Identifier: Apache-2.0
"""RocketMQ's own SQL92 and ours, on random filters and properties."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import product
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from store_core import Message, MessageStore, MessageStoreConfig, SqlFilter, StoreSnapshot
from store_core.config.consumer_filter_file import load_consumer_filters
from store_core.files.store_directory import StoreDirectory
from store_core.filter.sql_parser import MAX_NESTING, parse_sql
from store_core.filter.sql_steps import Search, Step
from store_core.filter.sql_tokens import SEARCH_WORDS
from store_core.layout import CQ_EXT_UNIT, EXT_ADDRESS_BASE
from tests.interop import java_cluster, java_oracle
from tests.interop.java_cluster import Broker
from tests.store_core.filter.sql_cases import (
    EXAMPLES,
    IGNORED,
    REFUSED,
    VALUES,
    Cases,
    column_answers,
    parsed,
    scalar_answers,
)

if TYPE_CHECKING:
    from tests.interop.java_oracle import FilterQuestion

DIALECTS = {"v5": 5, "v4": 4}
MAPS = 10
SEED = 15
SHORT_WORDS = "a b 5 '5' TRUE NULL = < NOT ( ) IS AND BETWEEN IN - , CONTAINS"
OPERATORS = {
    *("cast", "not", "negate", "equal", "is null", "between", "outside", "in", "and", "or"),
    *(f"compare {symbol}" for symbol in (">", ">=", "<", "<=")),
}
SEARCHES = {f"{negation}{word}" for negation in ("", "NOT ") for word in SEARCH_WORDS}
TOPIC, GROUP = "events", "serve_push_0"
EXPRESSION = "n > 15"
MESSAGES, KNOWN_FROM, HIDDEN = 60, 30, 47
"""The group is registered before message 30; the bits of message 47 are erased."""


def random_questions(seed: int, pairs: int) -> list[FilterQuestion]:
    cases = Cases(Random(seed))
    return [
        (cases.expression(), [cases.properties() for _ in range(MAPS)])
        for _ in range(pairs // MAPS)
    ]


def operator_of(step: Step) -> str:
    if isinstance(step.argument, Search):
        return f"{'NOT ' if step.argument.negated else ''}{step.argument.word}"
    return f"compare {step.argument}" if step.operation == "compare" else step.operation


def compare_answers(questions: Sequence[FilterQuestion], api: str) -> Counter[tuple[str, str]]:
    """Compare RocketMQ with both our evaluators; count operators by the results of filters."""
    reached: Counter[tuple[str, str]] = Counter()
    answers = java_oracle.answer_filters(questions, api=api)
    assert len(answers) == len(questions)
    wrong = []
    for (expression, maps), said in zip(questions, answers):
        sql_filter = parsed(expression, DIALECTS[api])
        if sql_filter is None:
            ours = {"P"}
        else:
            ours = {scalar_answers(sql_filter, maps), column_answers(sql_filter, maps)}
            count(reached, expression, DIALECTS[api], said)
        reached["", "P"] += said == "P"
        if ours != {said}:
            wrong.append((expression, said, ours, maps))
    assert wrong[:5] == []
    return reached


def count(reached: Counter[tuple[str, str]], expression: str, dialect: int, said: str) -> None:
    parsed_sql = parse_sql(expression, dialect)
    for operator in {operator_of(step) for step in parsed_sql.program}:
        reached.update((operator, letter) for letter in said)
    reached["ignored", ""] += parsed_sql.ignored is not None


def check_reached(reached: Counter[tuple[str, str]], api: str, least: int) -> None:
    operators = OPERATORS | (SEARCHES if api == "v5" else set())
    wanted: Iterable[tuple[str, str]] = [(name, letter) for name in operators for letter in "TFNE"]
    rare = {key: reached[key] for key in wanted if reached[key] < least}
    assert rare == {}
    assert reached["", "P"] >= least
    assert reached["ignored", ""] >= least


@pytest.mark.interop
@pytest.mark.parametrize("api", java_oracle.APIS)
def test_random_filters_are_answered_as_by_rocketmq(api):
    questions = random_questions(SEED, 20_000)
    check_reached(compare_answers(questions, api), api, least=5)


@pytest.mark.soak
@pytest.mark.parametrize("api", java_oracle.APIS)
def test_more_random_filters_are_answered_as_by_rocketmq(api, soak_seed):
    questions = random_questions(soak_seed, 200_000)
    check_reached(compare_answers(questions, api), api, least=50)


@pytest.mark.interop
@pytest.mark.parametrize("api", java_oracle.APIS)
def test_examples_are_answered_as_by_rocketmq(api):
    maps = [properties for _, properties, _ in EXAMPLES]
    texts = [row[0] for table in (EXAMPLES, REFUSED, IGNORED) for row in table]
    compare_answers([(text, maps) for text in dict.fromkeys(texts)], api)


@pytest.mark.interop
def test_the_examples_say_what_rocketmq_says():
    questions = [(expression, [properties]) for expression, properties, _ in EXAMPLES]
    assert java_oracle.answer_filters(questions) == [example[2] for example in EXAMPLES]


@pytest.mark.interop
@pytest.mark.parametrize("api", java_oracle.APIS)
def test_every_short_sequence_of_words_is_read_as_by_rocketmq(api):
    maps = [{"a": "5"}, {"b": "true"}, {"a": "x", "b": "4"}, {}]
    texts = [
        " ".join(words) for many in (1, 2, 3) for words in product(SHORT_WORDS.split(), repeat=many)
    ]
    compare_answers([(text, maps) for text in texts], api)


@pytest.mark.interop
def test_every_value_is_read_as_by_java():
    expressions = ["a = 5", "a = 4294967296", "a = 5.5", "a < b", "a = b", "a = TRUE"]
    expressions += ["a > -1", "a <= 2147483648", "a >= 0.1"]
    values = (
        *VALUES,
        *map(chr, range(0x100)),
        *(chr(n) for n in range(0x100, 0x10000, 7) if chr(n).isprintable()),
    )
    maps = [{"a": value, "b": other} for value in values for other in ("5", value)]
    compare_answers([(expression, maps) for expression in expressions], "v5")


@pytest.mark.interop
@pytest.mark.parametrize("api", java_oracle.APIS)
def test_long_texts_are_read_as_by_rocketmq(api):
    """Texts longer than RocketMQ's reader buffers, at whose ends it joins words again."""
    maps = [{"a": "x"}, {"a": "x" * 5000}, {}]
    texts = []
    for blanks in (*range(2040, 2056), *range(4080, 4104), 9000):
        texts += [
            " " * blanks + "a = 'x' AND NOT FALSE",
            f"a = '{'x' * blanks}'",
            f"a = 'x' /*{'*' * blanks}*/ OR a IS NULL",
            f"a = 'x' --{'-' * blanks}\nOR a IS NULL",
            f"a = 'x' --{'-' * blanks}",
            f"a = '{'x' * blanks}",
            f"a{'b' * blanks} IS NULL AND a = 'x'",
            f"a = 0.{'0' * blanks}1 OR TRUE",
            f"a = {'1' * blanks} OR TRUE",
            f"a {'IS NULL ' * (blanks // 8)}",
        ]
    compare_answers([(text, maps) for text in texts], api)


@pytest.mark.interop
@pytest.mark.parametrize("api", java_oracle.APIS)
def test_deep_texts_are_read_as_far_as_by_rocketmq(api):
    """RocketMQ's only limit is its stack: texts far from both limits have the same result."""
    texts = ["(" * 300 + "a = 1" + ")" * 300, "NOT " * MAX_NESTING + "a", "- " * 999 + "a IS NULL"]
    texts += ["(" * 100_000 + "a = 1" + ")" * 100_000, "NOT " * 100_000 + "a"]
    answers = java_oracle.answer_filters([(text, []) for text in texts], api=api)
    assert answers == ["", "", "", "P", "P"]
    compare_answers([(text, [{"a": "1"}, {}]) for text in texts], api)


# A Java broker filters by the bitmaps that this project wrote into extension units.


def settings_of(port: int) -> dict[str, Any]:
    return {
        "mappedFileSizeCommitLog": 65_536,
        "mappedFileSizeConsumeQueue": 800,
        "mappedFileSizeConsumeQueueExt": 4096,
        "maxHashSlotNum": 125,
        "maxIndexNum": 500,
        "enableConsumeQueueExt": "true",
        "enableCalcFilterBitMap": "true",
        "enablePropertyFilter": "true",
        "brokerIP1": "127.0.0.1",
        "listenPort": port,
    }


def write(config: MessageStoreConfig) -> None:
    with MessageStore(config) as store:
        for number in range(MESSAGES):
            if number == KNOWN_FROM:
                assert store.wait_for_dispatch()
                filters = store.consumer_filters
                assert filters.register(TOPIC, GROUP, EXPRESSION, client_version=1)
                time.sleep(0.01)  # bitmaps apply to later messages
            store.put_message(Message(TOPIC, b"", queue_id=0, properties={"n": str(number)}))
        assert store.wait_for_dispatch()


def hide(root: Path, number: int) -> None:
    """Erase the bitmap of a message that matches."""
    with StoreSnapshot(root) as snapshot:
        queue = snapshot.consume_queue(TOPIC, 0)
        assert queue is not None
        address = int(queue.read_units(number, number + 1)["tags_code"][0]) - EXT_ADDRESS_BASE
    files = sorted((root / "consumequeue_ext" / TOPIC / "0").iterdir())
    data = np.memmap(files[address // 4096], np.uint8, "r+")
    at = address % 4096 + CQ_EXT_UNIT.size
    assert data[at : at + 14].any()
    data[at : at + 14] = 0
    data.flush()


@pytest.mark.interop
def test_a_broker_delivers_what_the_bitmaps_let_pass(tmp_path: Path) -> None:
    root = tmp_path / "store"
    settings = settings_of(java_cluster.free_port())
    texts = {key: str(value) for key, value in settings.items()}
    config = MessageStoreConfig.from_properties({**texts, "storePathRootDir": str(root)})
    write(config)
    hide(root, HIDDEN)
    (before,) = load_consumer_filters(StoreDirectory(str(root))) or ()
    wanted = [number for number in range(MESSAGES) if number > 15 and number != HIDDEN]
    options = {"topics": TOPIC, "push": f"{TOPIC}:sql:{EXPRESSION}={len(wanted)}"}
    with Broker(root, tmp_path / "served", "5.3.3", settings, options) as broker:
        served = broker.wait()
    assert served.ok, served.said
    pushed = [row for row in served.received if row["mode"] == "CLUSTERING"]
    assert sorted(int(row["properties"]["n"]) for row in pushed) == wanted
    (after,) = load_consumer_filters(StoreDirectory(str(root))) or ()
    assert (after.expression, after.bit_positions) == (EXPRESSION, before.bit_positions)
    assert after.born_timestamp == before.born_timestamp
    assert after.client_version > before.client_version
    with StoreSnapshot(root, config) as snapshot:
        pull = snapshot.get_message(GROUP, TOPIC, 0, 40, MESSAGES, SqlFilter(EXPRESSION))
    # Reads of this project evaluate the expression on properties: bitmaps may be of another one.
    assert [int(m.properties["n"]) for m in pull.messages] == [*range(40, MESSAGES)]
