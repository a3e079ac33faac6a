"""Ids, hosts and numbers in a summary: altered ones are refused, missing ones are not."""

from __future__ import annotations

import functools
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cpstore.errors import SemanticDriftError
from cpstore.model.binding import Binding
from cpstore.rules import verbatim

HOST, ID, PORTS = "10.0.0.7:8443", "9f86d081-884c-4d65-9a2f-eaa0c55ad015", "8443"


def found(text: str, *definitions: str) -> list[tuple[str, str]]:
    """Return the (locked value, found token) of the refusal, [] if the text passes."""
    bindings = [Binding(f"s{at}", definition, verbatim=True) for at, definition in enumerate(definitions)]
    try:
        verbatim.check(text, bindings, "the summary at /messages/0")
    except SemanticDriftError as error:
        return [(value, token) for _, value, token in error.differences]
    return []


@pytest.mark.parametrize(
    ("definition", "text", "token"),
    [
        (HOST, "gateway: 10.0.0.8:8443 answers", "10.0.0.8:8443"),
        (HOST, "gateway: 10.0.0.7:8434 answers", "10.0.0.7:8434"),
        (HOST, f"gateway {HOST}, or (10.0.0.7:8444).", "10.0.0.7:8444"),
        (ID, "run " + ID.replace("884c", "884d"), ID.replace("884c", "884d")),
        (ID, "run " + ID.replace("0", "b", 1), ID.replace("0", "b", 1)),
        (ID, "run " + ID[:-1] + "x", None),
        ("9f86d081", "commit 9f86d0b1.", "9f86d0b1"),
        ("9f86d081", "commit 9f8d6081", "9f8d6081"),
        ("9f86d081", "commit f86d0819", "f86d0819"),
        ("deadbe1f", "commit deadbeef", "deadbeef"),
        ("dead-beef-cafe", "commit deed-beef-cafe", "deed-beef-cafe"),
        ("f00-1", "in f0-01", None),
        ("order INV-2024-17 of May", "INV-2024-71 was paid", "INV-2024-71"),
        ("api.example.com", "https is on at api.exampel.com", "api.exampel.com"),
        ("api.example.com", "asked api-example.com", None),
        ("https://api.example.com/v2", "GET https://api.example.com/v3/", "https://api.example.com/v3"),
        ("me@example.com", "mail to ne@example.com", "ne@example.com"),
        ("95%", "it is 96%", "96%"),
        ("v1.2+b#3", "it is v1.2+b#4", "v1.2+b#4"),
        ("db_7", "on db_8;", "db_8"),
        ("5 retries", "after 3 retries", "3"),
        ("5 retries", "after a retry, be it one", None),
        ("ms", "it is as slow as us", None),
        ("facade7", "the facades", None),
        ("main", "as said", None),
        ("production", "in productive use", "productive"),
        ("Key-7", "key-7 and KEY-7", None),
        ("Straße7", "Strasse7 and Straßen", None),
        ("Straße7", "Straße8", "Straße8"),
        ("12345678", "12345999 and 123456789 and 1234567", None),
        ("12345678", "12345699", "12345699"),
        ("12345678", "23456781", "23456781"),
        ("23456781", "12345678", "12345678"),
        ("12345678", "22345689", None),
        ("INV-7", "paid INW-7", "INW-7"),
        ("東京7", "東京8", "東京8"),
        ("東京7", "京都7", None),
        ("the retries of the gateway", "the detries of a gatewey", None),
        ("the range 1.5 to 2", "ranges fran 1.5 to 2", None),
        (HOST, f"{HOST} and “{HOST}”, ({HOST}); {HOST}/", None),
        (HOST, "nothing of it", None),
        (HOST, "", None),
    ],
)
def test_an_altered_value_is_refused_and_a_missing_one_is_not(definition: str, text: str, token: str | None) -> None:
    assert [shown for _, shown in found(text, definition)] == ([] if token is None else [token])


def test_the_refusal_names_symbol_value_and_token_of_all() -> None:
    bindings = [
        Binding("port", "port 8443, later 9559", verbatim=True),
        Binding("host", HOST, verbatim=True),
        Binding("run", "run 77", verbatim=False),
    ]

    with pytest.raises(SemanticDriftError, match="letter by letter") as caught:
        verbatim.check("10.0.0.7:8442 8442 8442; 9558 and run 78", bindings, "the summary at /messages/0")

    assert caught.value.where == "the summary at /messages/0"
    assert caught.value.differences == (
        ("host", HOST, "10.0.0.7:8442"),
        ("port", "8443", "8442"),
        ("port", "9559", "9558"),
    )


def test_the_value_of_another_verbatim_binding_is_no_altered_one() -> None:
    assert found("8443 and 8444", "8443", "8444") == []
    assert found("8443 and 8444", "either 8443 or 8444") == []
    assert found("8443 and 8445", "8443", "8444") == [("8443", "8445"), ("8444", "8445")]


@pytest.mark.parametrize(
    ("definition", "values"),
    [
        ("port 8443 of db-7, in seconds", ("8443", "db-7")),
        ("api.example.com", ("api.example.com",)),
        ("“production”.", ("production",)),
        ("two words", ()),
        ("…", ()),
        ("- / 7", ("7",)),
    ],
)
def test_what_has_a_digit_or_stands_alone_is_locked(definition: str, values: tuple[str, ...]) -> None:
    assert verbatim.values(Binding("s", definition)) == values


def test_tokens_lose_the_punctuation_around_them() -> None:
    assert verbatim.tokens("(a.b:c/d@e+f#g%h_i-j), -.:/k/: ,;l;, = … #m%") == (
        "a.b:c/d@e+f#g%h_i-j", "k", "l", "#m%",
    )  # fmt: skip


IDS = st.text("0123456789abcdefAB-.", min_size=1, max_size=12).map(lambda text: f"x{text}7")


def distance(one: str, other: str) -> int:
    """Levenshtein's, by its definition."""

    @functools.cache
    def rest(at: int, to: int) -> int:
        if at == len(one) or to == len(other):
            return len(one) - at + len(other) - to
        swap = rest(at + 1, to + 1) + (one[at] != other[to])
        return min(swap, rest(at + 1, to) + 1, rest(at, to + 1) + 1)

    return rest(0, 0)


@given(st.integers(1, 9).flatmap(lambda size: st.tuples(*[st.text("0123", min_size=size, max_size=size)] * 2)))
@example(("123456", "234561"))
@example(("0123450", "0234510"))
def test_numbers_are_refused_exactly_within_two_edits(pair: tuple[str, str]) -> None:
    value, token = pair

    assert bool(found(token, value)) == (0 < distance(value, token) <= 2)


@given(IDS, st.lists(IDS, max_size=5))
def test_a_text_of_locked_values_alone_passes(value: str, others: list[str]) -> None:
    assert found(" ".join([value, *others]), value, *others) == []


@given(IDS, st.data())
def test_one_digit_changed_is_found_wherever_it_stands(value: str, data: st.DataObject) -> None:
    at = data.draw(st.sampled_from([at for at, one in enumerate(value) if one.isdigit()]))
    digit = data.draw(st.sampled_from([one for one in "0123456789" if one != value[at]]))
    altered = value[:at] + digit + value[at + 1 :]
    words = data.draw(st.permutations([altered, value, "and", "of", "it,", "then"]))

    assert found(" ".join(words), value) == [(value, altered)]


@given(st.text(max_size=60), st.lists(st.text(max_size=20), max_size=3))
def test_any_text_passes_where_nothing_is_verbatim(text: str, definitions: list[Any]) -> None:
    bindings = [Binding("s", definition) for definition in definitions]

    verbatim.check(text, bindings, "a")
