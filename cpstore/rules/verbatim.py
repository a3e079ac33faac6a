"""Ids, hosts and numbers in a summary: the same letter by letter as those that were locked."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING

from cpstore.errors import SemanticDriftError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cpstore.model.binding import Binding

EDITS = 2
"""Edits (Levenshtein) within which a token is an altered one and not another one."""
WORD = 8
"""Below so many characters, a token of letters alone is a word: ``a`` is no other ``5``, ``is`` no other ``ms``."""

_RUN = re.compile(r"[\w\-.:/@+#%]+")
_OUTER = ".,:;/-"
_HEX = frozenset("0123456789abcdef-")


def check(text: str, bindings: Iterable[Binding], where: str) -> None:
    """Let a summary's text pass that alters none of the values in verbatim ``bindings``; leaving one out is no change.

    A token of equal length and shape within two edits of a locked value is an altered one, unless it is a locked value
    itself or a short word. ``where`` names the summary in the error. Raises SemanticDriftError with
    ``(symbol, locked value, found token)`` for each.
    """
    locked = {(binding.symbol, value) for binding in bindings if binding.verbatim for value in values(binding)}
    exact = {value for _, value in locked}
    by_length: defaultdict[int, list[str]] = defaultdict(list)
    for token in set(tokens(text)) - exact:
        by_length[len(token)].append(token)
    differences = [
        (symbol, value, token) for symbol, value in locked for token in by_length[len(value)] if _altered(value, token)
    ]
    if differences:
        advice = "write the value letter by letter as it is locked, or leave it out: the glossary keeps it"
        raise SemanticDriftError(where, sorted(differences), advice)


def values(binding: Binding) -> tuple[str, ...]:
    """Return the tokens of a definition that are to survive letter by letter.

    They are those with a digit; or the whole definition, where it is one token.
    """
    found = tokens(binding.definition)
    if len(found) == 1:
        return found
    return tuple(token for token in found if any(map(str.isdigit, token)))


def tokens(text: str) -> tuple[str, ...]:
    """Return the runs of letters, digits and ``_ - . : / @ + # %`` in a text, without the punctuation around them."""
    return tuple(filter(None, (run.strip(_OUTER) for run in _RUN.findall(text))))


def _altered(value: str, token: str) -> bool:
    if token.isalpha() and len(token) < WORD:
        return False
    return _alike(value, token) and _close(value, token)


def _alike(value: str, token: str) -> bool:
    """Whether two tokens of equal length have one shape: as text, or both as hex."""
    if _shape(value) == _shape(token):
        return True
    return _HEX.issuperset(value + token) and _dashes(value) == _dashes(token)


def _shape(token: str) -> str:
    return "".join("9" if one.isdigit() else "a" if one.islower() else "A" if one.isupper() else one for one in token)


def _dashes(token: str) -> list[int]:
    return [at for at, one in enumerate(token) if one == "-"]


def _close(value: str, token: str) -> bool:
    """Whether two tokens of equal length are within two edits.

    That is two replaced characters, or one taken out and one put in. Between the first and the last place where they
    differ, the latter is a shift by one.
    """
    apart = [at for at, (one, other) in enumerate(zip(value, token, strict=True)) if one != other]
    if len(apart) <= EDITS:
        return True
    first, last = apart[0], apart[-1] + 1
    left, right = value[first:last], token[first:last]
    return left[1:] == right[:-1] or left[:-1] == right[1:]
