# SPDX-License-Identifier: Apache-2.0
"""The plots: the content of their titles, and that nothing in them is cut off."""

from __future__ import annotations

import json
import re
import warnings
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import matplotlib.figure as figure_module
import pandas
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from rmqsource import explore, plots
from rmqsource.plots import style as plot_style
from rmqsource.stream.stream_lag import StoreLag, store_lags
from tests.golden_store import GoldenStore, golden

RECORDED = Path(__file__).parents[1] / "stream" / "recorded_progress.json"
PROGRESSES = json.loads(RECORDED.read_text("utf-8"))


@pytest.fixture(scope="module")
def store() -> GoldenStore:
    return golden("cluster-5x")


@pytest.fixture(scope="module")
def drawn(store: GoldenStore) -> dict[str, Any]:
    path, options = str(store.root), store.options
    counts = explore.survey(path, options)
    limited = PROGRESSES["4.3, limits, three sources"]
    return {
        "traffic": plots.traffic(explore.traffic(counts)),
        "bytes": plots.traffic(explore.traffic(counts), value="bytes"),
        "topics": plots.bytes_by_topic(explore.topics(path, options)),
        "sizes": plots.message_sizes(explore.sizes(counts)),
        "latency": plots.latency(explore.latency(counts)),
        "skew": plots.queue_skew(explore.queue_skew(counts)),
        "tags": plots.tags(explore.tags(counts)),
        "keys": plots.top_keys(explore.top_keys(counts)),
        "lag": plots.consumer_lag(explore.consumer_lag(path, options)),
        "life": plots.life(explore.trace(path, key="R0", options=options)),
        "lookup": plots.lookup_and_scan(
            explore.lookup_and_scan(path, "orders", "shared-key", options)
        ),
        "stream": plots.stream_lag(limited),
        "stream time": plots.stream_lag(limited, value="time"),
        "stream bytes": plots.stream_lag(limited, value="bytes"),
    }


TITLES = {
    "traffic": "Traffic peaks at 197 messages in 1 s, at 2026-11-21 12:26:34 UTC",
    "bytes": "Traffic peaks at 181 kB in 1 s, at 2026-11-21 12:26:34 UTC",
    "topics": "documents fills 42 % of the 416 kB taken up by records",
    "sizes": "Half of the records take up to 334 B, 99 % up to about 8.97 kB",
    "latency": "Half of the messages are stored within 2 ms, 99 % within 16 ms",
    "skew": "shipments is the least even: its fullest queue has 1.3 times an even share",
    "tags": "13 % of the messages have tag TagC",
    "keys": "Key shared-key of orders occurs 30 times",
    "lag": "cg_orders_lagging is 174 messages behind, by up to 1.47 s",
    "life": "jobs: dead letter after 27.8 s (2026-11-21, UTC)",
    "lookup": "The lookup reads 2 % of what the scan reads",
    "stream": "Up to 36 messages behind a (source 0), at 2026-11-22 22:16:48 UTC; none at the\nend",
    "stream time": "Up to 1.08 s behind a (source 0), at 2026-11-22 22:16:48 UTC; none at the end",
    "stream bytes": "Up to 6.76 kB behind a (source 0), at 2026-11-22 22:16:48 UTC; none at the "
    "end",
}


@pytest.mark.parametrize("name", TITLES)
def test_the_title_says_the_finding(drawn: dict[str, Any], name: str) -> None:
    assert drawn[name].figure.get_suptitle() == TITLES[name]


@pytest.mark.parametrize("name", TITLES)
def test_nothing_is_cut_off(drawn: dict[str, Any], name: str) -> None:
    assert_whole(drawn[name])


def assert_whole(ax: Any) -> None:
    figure = ax.figure
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    undrawn = undrawn_labels(ax)
    for text in figure.findobj(lambda artist: hasattr(artist, "get_text")):
        if not text.get_text().strip() or not text.get_visible() or text in undrawn:
            continue
        box = text.get_window_extent(renderer)
        assert box.x0 >= -1, text.get_text()
        assert box.y0 >= -1, text.get_text()
        assert box.x1 <= figure.bbox.x1 + 1, text.get_text()
        assert box.y1 <= figure.bbox.y1 + 1, text.get_text()


def undrawn_labels(ax: Any) -> set[Any]:
    """Return the labels of ticks outside their axis, or of axes that are off."""
    found = set()
    for axis, limits in ((ax.xaxis, ax.get_xlim()), (ax.yaxis, ax.get_ylim())):
        for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()):
            if not ax.axison or not min(limits) <= tick.get_loc() <= max(limits):
                found |= {tick.label1, tick.label2}
    return found


def test_long_and_odd_names_fit() -> None:
    odd = "%RETRY%" + "group-with-a-very-long-name_" * 5
    names = [odd, "\u4e2d\u6587\u6807\u7b7e", "$x_{a}$ \\frac", "a\nb\x00c", "", "\U0001f600"]
    rows = [
        {"group": n, "topic": odd, "queue_id": 2**31 - 1, "lag": 10**12 - i, "lag_ms": 10**11}
        for i, n in enumerate(names)
    ]
    assert_whole(plots.consumer_lag(pandas.DataFrame(rows)))
    columns = {"topic": odd, "kind": "normal", "tags": [*names, None], "messages": range(7, 0, -1)}
    tags = pandas.DataFrame(columns)
    assert_whole(plots.tags(tags))
    keys = tags.drop(columns="kind").rename(columns={"tags": "key"}).dropna()
    assert_whole(plots.top_keys(keys))
    held = [{"topic": n, "bytes": 10.0**15, "bytes_per_day": 10.0**14} for n in names]
    assert_whole(plots.bytes_by_topic(pandas.DataFrame(held)))


@pytest.mark.parametrize("name", ["empty-5x", "onefile-5x"])
def test_stores_with_little_in_them(name: str) -> None:
    store = golden(name)
    path, options = str(store.root), store.options
    counts = explore.survey(path, options)
    for ax in (
        plots.traffic(explore.traffic(counts)),
        plots.bytes_by_topic(explore.topics(path, options)),
        plots.message_sizes(explore.sizes(counts)),
        plots.latency(explore.latency(counts)),
        plots.queue_skew(explore.queue_skew(counts)),
        plots.tags(explore.tags(counts)),
        plots.top_keys(explore.top_keys(counts)),
        plots.consumer_lag(explore.consumer_lag(path, options)),
        plots.life(explore.trace(path, key="none", options=options)),
    ):
        assert ax.figure.get_suptitle()
        assert_whole(ax)


def test_a_notebook_shows_the_picture(drawn: dict[str, Any]) -> None:
    assert drawn["tags"].figure._repr_png_().startswith(b"\x89PNG")


def test_given_axes_are_drawn_into(store: GoldenStore) -> None:
    figure = figure_module.Figure(layout="constrained")
    ax = figure.add_subplot()
    frame = explore.tags(explore.survey(str(store.root), store.options))
    assert plots.tags(frame, ax) is ax
    assert ax.get_title("left") == TITLES["tags"]
    assert figure.get_suptitle() == ""


def test_a_topic_has_one_colour(drawn: dict[str, Any]) -> None:
    colours: dict[str, set[Any]] = {}
    for name in ("traffic", "bytes"):
        legend = drawn[name].get_legend()
        for text, patch in zip(legend.get_texts(), legend.get_patches()):
            colours.setdefault(text.get_text(), set()).add(patch.get_facecolor())
    assert all(len(found) == 1 for found in colours.values())
    assert len(set.union(*colours.values())) == len(colours)


def test_the_bars_of_the_look_up_are_what_its_title_says(
    drawn: dict[str, Any], store: GoldenStore
) -> None:
    frame = explore.lookup_and_scan(str(store.root), "orders", "shared-key", store.options)
    bars = [bar.get_width() for bar in drawn["lookup"].patches]
    assert bars == frame["bytes_to_read"].to_list()
    assert bars[0] / bars[1] == pytest.approx(0.023, abs=0.005)
    texts = [text.get_text() for text in drawn["lookup"].texts]
    assert [bool(re.fullmatch(r"[\d.]+ kB, in [\d.]+ (ms|s)", text)) for text in texts] == [
        True
    ] * 2


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (plot_style.bytes_text(999), "999 B"),
        (plot_style.bytes_text(1000), "1 kB"),
        (plot_style.bytes_text(415_587), "416 kB"),
        (plot_style.bytes_text(3.2e13), "32 TB"),
        (plot_style.duration_text(0), "0 ms"),
        (plot_style.duration_text(1467), "1.47 s"),
        (plot_style.duration_text(3 * 86_400_000), "3 days"),
        (plot_style.count_text(12_345), "12,345"),
        (plot_style.count_text(1_230_000), "1.23 million"),
        (plot_style.percent_text(0.004), "under 1 %"),
        (plot_style.short("x" * 50, 11), "xxxxx…xxxxx"),
    ],
)
def test_texts(found: str, expected: str) -> None:
    assert found == expected


def test_topics_of_which_none_has_a_rate_are_drawn_without_a_warning() -> None:
    frame = pandas.DataFrame({"topic": ["A"], "bytes": [10], "bytes_per_day": [None]}, dtype=object)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_whole(plots.bytes_by_topic(frame))


@pytest.mark.parametrize(
    ("name", "frame", "title"),
    [
        ("top_keys", {"topic": ["A", "B"], "key": ["k", "l"], "messages": [1, 1]}, "No key occurs"),
        (
            "tags",
            {"topic": ["A"], "kind": ["normal"], "tags": [None], "messages": [3]},
            "No message has a tag",
        ),
        (
            "queue_skew",
            {"topic": ["A", "A"], "kind": "normal", "queue_id": [0, 1], "times_even": [1.0, 1.0]},
            "All topics are spread evenly over their queues",
        ),
    ],
)
def test_what_is_the_same_all_over_is_said_and_not_drawn(
    name: str, frame: dict[str, Any], title: str
) -> None:
    ax = getattr(plots, name)(pandas.DataFrame(frame))
    assert ax.figure.get_suptitle().startswith(title)
    assert not ax.has_data()


def test_keys_of_which_some_were_let_go_are_not_said_to_occur_once() -> None:
    frame = pandas.DataFrame({"topic": ["A"], "key": ["k"], "messages": [1]})
    frame.attrs["missed"] = 2
    assert plots.top_keys(frame).figure.get_suptitle() == "No key occurs more than 3 times"


def test_one_message_is_not_called_messages() -> None:
    frame = pandas.DataFrame(
        {"group": ["g"], "topic": ["A"], "queue_id": [0], "lag": [1], "lag_ms": [None]}
    )
    assert plots.consumer_lag(frame).figure.get_suptitle() == "g is 1 message behind"


def test_a_picture_for_a_phone_is_whole(store: GoldenStore) -> None:
    counts = explore.survey(str(store.root), store.options)
    for ax in (
        plots.traffic(explore.traffic(counts), plot_style.new_axes(4.0, 4.0)),
        plots.message_sizes(explore.sizes(counts), plot_style.new_axes(4.0, 3.0)),
        plots.latency(explore.latency(counts), plot_style.new_axes(4.0, 3.0)),
        plots.queue_skew(explore.queue_skew(counts), plot_style.new_axes(4.0, 3.0)),
    ):
        ax.figure.suptitle("")  # a page has it as text
        assert_whole(ax)


@pytest.mark.parametrize("width", [4.0, 7.2, 9.0])
def test_labels_of_an_axis_do_not_touch(store: GoldenStore, width: float) -> None:
    counts = explore.survey(str(store.root), store.options)
    for ax in (
        plots.traffic(explore.traffic(counts), plot_style.new_axes(width, 3.2)),
        plots.message_sizes(explore.sizes(counts), plot_style.new_axes(width, 3.0)),
        plots.latency(explore.latency(counts), plot_style.new_axes(width, 3.0)),
    ):
        canvas = FigureCanvasAgg(ax.figure)
        canvas.draw()
        unseen = undrawn_labels(ax)
        labels = [label for label in ax.get_xticklabels() if label not in unseen]
        boxes = sorted(label.get_window_extent().extents.tolist() for label in labels)
        assert len(boxes) >= 2
        assert all(one[2] < other[0] for one, other in zip(boxes, boxes[1:]))


def lag(number: int, behind: int | None, store: str = "/data/a", query: str = "q") -> StoreLag:
    """Return the lag of a batch that began ``number`` minutes after noon."""
    at = datetime(2026, 1, 31, 12, number, tzinfo=timezone.utc)
    return StoreLag(query, None, number, at, 0, store, 0, None, behind, None, None)


def test_a_line_for_each_store_and_a_gap_where_lag_is_not_known() -> None:
    limited = PROGRESSES["4.3, limits, three sources"]
    lines = {line.get_label(): line for line in plots.stream_lag(limited).get_lines()}
    assert list(lines) == ["a (source 0)", "b", "a (source 1)"]
    assert lines["a (source 0)"].get_ydata().tolist() == [36, 22, 9, 0]
    lags = [lag for progress in limited for lag in store_lags(progress)]
    assert len(plots.stream_lag(reversed(lags)).get_lines()) == 3

    ax = plots.stream_lag([lag(0, 3), lag(1, None), lag(2, 1)])
    (line,) = ax.get_lines()
    assert [str(value) for value in line.get_ydata()] == ["3.0", "nan", "1.0"]
    assert ax.get_legend() is None
    assert ax.get_xlabel() == "begin of the trigger, 2026-01-31 (UTC)"


def test_stores_and_queries_are_told_apart() -> None:
    stores = [f"/data/{name}/store" for name in "abcdefgh"]
    lags = [lag(n, 20 - place, store) for n in (0, 1) for place, store in enumerate(stores)]
    ax = plots.stream_lag(lags)
    names = [text.get_text() for text in ax.get_legend().get_texts()]
    assert names == [f"{name}/store" for name in "abcdef"] + ["all others"]
    assert len(ax.get_lines()) == 8
    assert_whole(ax)
    ax = plots.stream_lag([lag(0, 5, query="one"), lag(0, 6, query="other")])
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["a (other)", "a (one)"]
    ax = plots.stream_lag([lag(0, 5, "/data"), lag(0, 6, "/data/a")])
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["data/a", "data"]


@pytest.mark.parametrize("width", [4.0, 7.2, 9.0])
@pytest.mark.parametrize("seconds", [0, 3, 86_400 * 40])
def test_lag_of_any_time_fits_pages_and_phones(width: float, seconds: int) -> None:
    first = lag(0, 10**9, "/data/" + "long-name-" * 9)
    second = first._replace(at=first.at + timedelta(seconds=seconds), messages_behind=1)
    other = first._replace(store="s3://bucket/\u4e2d\u6587?x=$y$")
    ax = plots.stream_lag([first, other, second], plot_style.new_axes(width, 3.6))
    ax.figure.suptitle("")  # a page has it as text
    assert_whole(ax)


@pytest.mark.parametrize(
    ("lags", "title"),
    [
        ([], "No progress report shows how far behind a stream is"),
        ([lag(0, None)], "No progress report shows how far behind a stream is"),
        (PROGRESSES["4.0"], "No stream is behind after any batch"),
    ],
)
def test_lag_that_is_none_or_not_known_is_said_and_not_drawn(lags: list[Any], title: str) -> None:
    ax = plots.stream_lag(lags)
    assert ax.figure.get_suptitle() == title
    assert not ax.has_data()
