from __future__ import annotations

import datetime as dt
import json
import uuid
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpstore.inspect import render

HOSTILE = {
    "\x1b[31mred": r"\x1b[31mred",
    "a\r\nb\tc": r"a\x0d\x0ab\x09c",
    "\x9b2J": r"\x9b2J",
    "\u202egpj.exe": r"\u202egpj.exe",
    "\u2066x\u2069": r"\u2066x\u2069",
    "a\u200bb": r"a\u200bb",
    "a\u2028b": r"a\u2028b",
    "\ud800": r"\ud800",
    "\U000e0041": r"\U000e0041",
    "\\x1b": r"\\x1b",
    "[bold]ok[/bold] :boom:": "[bold]ok[/bold] :boom:",
    "Grüße, 世界 🎉": "Grüße, 世界 🎉",
}


@pytest.mark.parametrize(("text", "shown"), HOSTILE.items(), ids=map(ascii, HOSTILE))
def test_hidden_characters_are_spelled_out(text, shown):
    assert render.visible(text) == shown


@given(st.text(), st.text())
def test_what_is_shown_tells_two_texts_apart(one, other):
    assert (render.visible(one) == render.visible(other)) == (one == other)


@given(st.text(alphabet=st.characters()))
def test_nothing_shown_can_act_on_a_terminal(text):
    assert all(char.isprintable() or char.isspace() for char in render.visible(text))
    assert not set(render.visible(text)) & set(map(chr, [*range(32), *range(127, 160)]))


@pytest.mark.parametrize("text", ["[bold red]x[/]", "[/]", "[link=file:///etc/passwd]x[/link]", ":skull:"])
def test_a_table_takes_markup_literally(text, capsys):
    render.table(("name",), [(text,)])

    assert text in capsys.readouterr().out


def test_long_names_are_folded_not_cut(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    name = "".join(map(chr, range(0x100, 0x180)))

    render.table(("name", "n"), [(name, "1")], right=("n",))

    shown = capsys.readouterr().out
    assert all(char in shown for char in name)


VALUES = {
    "bytes": (b"\x00\xff", {"$type": "bytes", "value": "AP8="}),
    "tuple": ((1, "a"), {"$type": "tuple", "value": [1, "a"]}),
    "set": ({2, 1}, {"$type": "set", "value": [1, 2]}),
    "frozenset": (frozenset({"a"}), {"$type": "frozenset", "value": ["a"]}),
    "nan": (float("nan"), {"$type": "float", "value": "nan"}),
    "infinity": (float("-inf"), {"$type": "float", "value": "-inf"}),
    "decimal": (Decimal("1.10"), {"$type": "Decimal", "value": "1.10"}),
    "date": (dt.date(2025, 1, 2), {"$type": "date", "value": "2025-01-02"}),
    "duration": (dt.timedelta(days=1), {"$type": "timedelta", "value": [1, 0, 0]}),
    "uuid": (uuid.UUID(int=1), {"$type": "UUID", "value": "00000000-0000-0000-0000-000000000001"}),
    "nested": ({"a": [(1,)]}, {"a": [{"$type": "tuple", "value": [1]}]}),
    "a mapping that looks tagged": (
        {"$type": "bytes", "value": "AA=="},
        {"$type": "dict", "value": [["$type", "bytes"], ["value", "AA=="]]},
    ),
}


@pytest.mark.parametrize(("value", "expected"), VALUES.values(), ids=VALUES)
def test_what_json_has_no_word_for_is_tagged(value, expected):
    assert render.in_json(value) == expected
    json.dumps(render.in_json(value), allow_nan=False)


def test_json_output_is_ascii_and_reads_back(capsys):
    value = {"\x1b]0;title\x07": "\u202e\ud800"}

    render.print_json(value)

    out = capsys.readouterr().out
    assert out.isascii()
    assert "\x1b" not in out
    assert json.loads(out) == value


@pytest.mark.parametrize("value", ["x" * 500, ["y"] * 500, {str(n): n for n in range(500)}, "\x1b" * 50, [["z" * 200]]])
def test_a_brief_value_is_one_short_harmless_line(value):
    shown = render.brief(value)

    assert len(shown) <= 60
    assert shown.isprintable()


@pytest.mark.parametrize(
    ("count", "shown"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (1_234_567, "1.2 MB"), (5_000_000_000_000, "5000.0 GB")],
)
def test_sizes_are_decimal(count, shown):
    assert render.amount(count) == shown


@pytest.mark.parametrize(
    ("time", "shown"),
    [(0, "1970-01-01 00:00:00Z"), (-(1 << 62), f"{-(1 << 62)} us"), (1_700_000_000_123_456, "2023-11-14 22:13:20Z")],
)
def test_any_time_label_can_be_shown(time, shown):
    assert render.moment(time) == shown


def test_no_progress_is_drawn_where_there_is_no_terminal(capsys):
    with render.progress("work") as report:
        assert report is None

    assert capsys.readouterr() == ("", "")
