# SPDX-License-Identifier: Apache-2.0
"""Option declarations: those of all tables, and the option objects they make."""

from __future__ import annotations

from dataclasses import dataclass, fields

import pytest

from rmqsource.errors import SourceOptionError
from rmqsource.live.live_options import (
    LIVE_OPTION_TABLE,
    LIVE_SINK_OPTION_TABLE,
    ClusterConnection,
    LiveOptions,
    LiveSinkOptions,
    Secrets,
    TlsFiles,
)
from rmqsource.options.option_values import (
    OptionInfo,
    check_together,
    choice,
    filled,
    given_options,
    option,
    option_values,
    options_of,
    parse_int,
)
from rmqsource.options.source_options import OPTION_TABLE, SourceOptions
from rmqsource.sink.options import SINK_OPTION_TABLE, SinkOptions

TABLES = {
    "source": OPTION_TABLE,
    "sink": SINK_OPTION_TABLE,
    "live source": LIVE_OPTION_TABLE,
    "live sink": LIVE_SINK_OPTION_TABLE,
}
KINDS = (
    *(SourceOptions, SinkOptions, LiveOptions, LiveSinkOptions),
    *(ClusterConnection, Secrets, TlsFiles),
)


@dataclass(frozen=True)
class Pair:
    first: str
    count: int = option("count", parse_int, "how many", "7")
    width: int = choice("widthOf", "one of {}", 4, 8)
    other: int | None = option("other", parse_int, "another")


PAIR_TABLE = (*options_of(Pair), OptionInfo("sizeOfFile", parse_int, "of the store"))


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_tables_name_each_option_once_and_say_what_it_means(table):
    assert len({info.name.lower() for info in table}) == len(table)
    assert all(info.meaning for info in table)


@pytest.mark.parametrize("kind", KINDS)
def test_documented_defaults_are_the_real_ones(kind):
    defaults = {each.name: each.default for each in fields(kind)}
    for info in options_of(kind):
        if info.name in {"startingOffsets", "endingOffsets"}:
            assert defaults[info.field] is None  # the same as the word: no bound
            assert info.parse(info.name, info.default).offsets == {}
        elif info.default:
            assert info.parse(info.name, info.default) == defaults[info.field]
        else:
            assert defaults[info.field] in {None, ()}


def test_a_field_is_an_option():
    assert [(info.name, info.field, info.default) for info in options_of(Pair)] == [
        ("count", "count", "7"),
        ("widthOf", "width", "4"),
        ("other", "other", ""),
    ]
    assert options_of(Pair)[1].meaning == "one of 4, 8"
    assert Pair("a") == Pair("a", 7, 4, None)


def test_values_fill_the_fields():
    given = given_options({"WIDTHOF": "8", "other": None, "sizeoffile": "1"}, PAIR_TABLE)
    values = option_values(given)
    assert values == {"width": 8, "store_config": (("sizeOfFile", 1),)}
    assert filled(Pair, values, first="a") == Pair("a", width=8)
    with pytest.raises(SourceOptionError, match="'widthOf': expected one of 4, 8; found '5'"):
        option_values(given_options({"widthof": "5"}, PAIR_TABLE))


def test_two_options_come_together():
    check_together((), "a", "b")
    check_together(("b", "a"), "a", "b")
    for one, missing in (("a", "b"), ("b", "a")):
        with pytest.raises(SourceOptionError, match=f"'{one}': requires '{missing}'"):
            check_together((one,), "a", "b")
