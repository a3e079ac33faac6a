"""Canonical JSON: one spelling for each value, and nothing outside the model."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpstore.canonical import MAX_DEPTH, MAX_INTEGER, decode, encode
from cpstore.errors import CheckpointStoreError, CorruptError, InvalidStateError

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
KEYS = st.text(st.characters(max_codepoint=127))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-MAX_INTEGER, MAX_INTEGER) | TEXT,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=30,
)


@given(VALUES)
def test_the_spelling_is_that_of_rfc_8785(value):
    rfc8785 = pytest.importorskip("rfc8785")

    assert encode(value) == rfc8785.dumps(value)


@given(VALUES)
def test_what_is_written_is_read(value):
    assert decode(encode(value)) == value


def test_this_spelling_never_changes():
    value = {"b": [1, -2, True, None], "a\n": 'é\u2028\U0001f600\x7f\x1f"\\/', "B": {}, "": []}

    assert encode(value) == (
        b'{"":[],"B":{},"a\\n":"\xc3\xa9\xe2\x80\xa8\xf0\x9f\x98\x80\x7f\\u001f\\"\\\\/","b":[1,-2,true,null]}'
    )


class Text(str):
    __slots__ = ()


class Number(int):
    pass


@pytest.mark.parametrize(
    "value",
    [
        1.0,
        -0.0,
        math.nan,
        math.inf,
        MAX_INTEGER + 1,
        -MAX_INTEGER - 1,
        10**5000,
        b"bytes",
        (1, 2),
        {1, 2},
        "\ud800",
        "a\udfffb",
        {"é": 1},
        {"\ud800": 1},
        {1: 2},
        {None: 2},
        {True: 2},
        {Text("a"): 1},
        Text("a"),
        Number(1),
        object(),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_outside_the_model_is_refused_with_its_place(value):
    with pytest.raises(InvalidStateError):
        encode(value)
    with pytest.raises(InvalidStateError) as caught:
        encode({"a": [0, value]})
    assert caught.value.path.startswith("/a/1")


@pytest.mark.parametrize("wrap", [lambda inner: [inner], lambda inner: {"a": inner}], ids=["lists", "dicts"])
def test_the_depth_is_limited(wrap):
    value = None
    for _ in range(MAX_DEPTH):
        value = wrap(value)

    assert decode(encode(value)) == value
    with pytest.raises(InvalidStateError, match="deep"):
        encode(wrap(value))


def test_a_value_that_holds_itself_is_refused():
    circle: list = []
    circle.append(circle)

    with pytest.raises(InvalidStateError, match="deep"):
        encode(circle)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b" 1",
        b"1 ",
        b"1\n",
        b"[1, 2]",
        b'{"a": 1}',
        b'{"a":1,"a":1}',
        b'{"a":1,"a":2}',
        b'{"b":1,"a":1}',
        b"1.0",
        b"1e3",
        b"1E400",
        b"-0",
        b"01",
        b"+1",
        b"NaN",
        b"Infinity",
        b"-Infinity",
        b"[NaN]",
        b"9007199254740992",
        b"-9007199254740992",
        b"9" * 5000,
        b'"\\u0061"',
        b'"\\/"',
        b'"\\u000A"',
        b'"\\ud83d\\ude00"',
        b'"\\ud800"',
        b'"\xed\xa0\x80"',
        b'"\xff"',
        b'"\x01"',
        b"\xef\xbb\xbf1",
        b'{"\xc3\xa9":1}',
        b"[1,]",
        b"{'a':1}",
        b"[" * 100_000,
        b"[" * 100_000 + b"]" * 100_000,
        b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
        b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1),
        b"truefalse",
        b'"a\x00"',
    ],
    ids=lambda data: repr(data[:24]),
)
def test_every_other_spelling_is_corrupt(data):
    with pytest.raises(CorruptError):
        decode(data)


@given(st.binary(max_size=60) | st.text(max_size=60).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_what_is_read_is_exactly_what_would_be_written(data):
    try:
        value = decode(data)
    except CheckpointStoreError:
        return
    assert encode(value) == data


@given(VALUES)
def test_an_indented_or_escaped_spelling_is_corrupt(value):
    for other in (json.dumps(value, indent=1), json.dumps(value, separators=(",", ":"), ensure_ascii=True)):
        data = other.encode()
        if data != encode(value):
            with pytest.raises(CorruptError):
                decode(data)
