"""What a compaction may put in the place of what it covers, and what of its claims holds."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from cpstore.errors import CompactionConsistencyError, InvalidStateError
from cpstore.model.compaction import CLAIMS, Claim, Covered, EffectClaim, KeyClaim, TermClaim, pointer_fault
from cpstore.model.names import check_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from cpstore.model.binding import Binding
    from cpstore.model.ledger import Held, Member

SHORTEST = 16
"""Characters of text that a summary has at least."""

# How the chat formats of the large APIs (OpenAI's two, Anthropic's, LangChain's) mark what is no text for a reader.
_TEXTS = frozenset({"text", "input_text", "output_text"})
_TOOL_ROLES = frozenset({"tool", "function"})
_CALLS = ("tool_calls", "function_call")
_PROTOCOL = _TOOL_ROLES | frozenset(
    {
        "tool_use",
        "tool_result",
        "tool_call",
        "function_call",
        "function_call_output",
        "reasoning",
        "thinking",
    }
)


def check_summary(value: object, size: int, covered_size: int, path: str) -> str:
    """Return the text of a summary that may stand at ``path`` of the compacted state.

    ``value`` is what stands there: a text, or a message with a text or a list of parts as its content. ``size`` and
    ``covered_size`` are its stored bytes and those of what it covers. Raises InvalidStateError for tool protocol or
    reasoning, for text of fewer than 16 characters, and for a summary that is not smaller than what it covers.
    """
    if _is_protocol(value):
        raise InvalidStateError(
            "the summary is a tool call, a tool result or reasoning", path, "let it be a text or a message for a reader"
        )
    parts = [part.strip() for part in _texts(value, path)]
    length = sum(map(len, parts))
    if not length:
        raise InvalidStateError("the summary has no text", path, "say what the covered content said")
    if length < SHORTEST:
        raise InvalidStateError(
            f"the summary has {length} characters of text, at least {SHORTEST} are needed",
            path,
            "say what the covered content said",
        )
    text = "\n".join(filter(None, parts))
    if any(_is_protocol(_read_json(part)) for part in (text, *parts)):
        raise InvalidStateError(
            "the summary's text is the JSON of a tool call, a tool result or reasoning", path, "write it for a reader"
        )
    if size >= covered_size:
        raise InvalidStateError(
            f"the summary takes {size} bytes, what it covers {covered_size}", path, "a summary is smaller: shorten it"
        )
    return text


def level(covered_levels: Iterable[int]) -> int:
    """Return the level of a summary in the summary tree: one above the highest that it covers, else 1."""
    return 1 + max(covered_levels, default=0)


def span(head_revision: int, previous_revision: int | None) -> tuple[int, int]:
    """Return the first and the last revision that a compaction of the head covers.

    ``previous_revision`` is the one that the lineage's compaction before it made, None or 0 if there is none. The
    compaction itself makes the revision after the last. Raises InvalidStateError if there is nothing between them.
    """
    first = previous_revision or 1
    if head_revision < first:
        raise InvalidStateError(f"there is no revision from {first} to {head_revision} to compact", advice="commit one")
    return first, head_revision


def check_covers(claimed: Iterable[Covered] | None, computed: tuple[Covered, ...]) -> None:
    """Let a compaction pass that covers what its caller says; None says nothing.

    A claimed digest of ``""`` is not claimed, nor are sizes ever. Raises InvalidStateError if nothing is covered,
    CompactionConsistencyError with both if the ranges or the digests are others.
    """
    if not computed:
        raise InvalidStateError(
            "nothing was compacted: the new state holds all of the previous one", advice="use commit"
        )
    if claimed is None:
        return
    said = tuple(claimed)
    for claim in said:
        if not isinstance(claim, Covered):
            raise InvalidStateError(f"covers lists Covered records, not {claim!r:.100}")
    digests = {_range(covered): covered.digest for covered in computed}
    fits = {_range(claim) for claim in said} == digests.keys()
    if not fits or any(claim.digest not in ("", digests[_range(claim)]) for claim in said):
        raise CompactionConsistencyError(
            f"the compaction says that it covers {_ranges(said)}; what the previous state held and the new one does "
            f"not is {_ranges(computed)}; nothing was written: look at the head again, or leave covers out"
        )


def check_claims(
    claims: Iterable[Claim],
    *,
    terms: Mapping[str, Binding],
    effects: Callable[[EffectClaim], str | None],
    keys: Callable[[KeyClaim], Held | None],
) -> tuple[Claim, ...]:
    """Return those claims of a summary that have no source at all.

    ``terms`` has the bindings in force by symbol, ``effects`` answers the recorded state of an effect, ``keys`` what a
    ledger holds now; both None for what they do not know. Raises InvalidStateError for what is no claim,
    CompactionConsistencyError with every claim that says another thing than its source.
    """
    unbacked: list[Claim] = []
    wrong = []
    for claim in claims:
        _check_claim(claim)
        said, found = _sides(claim, terms, effects, keys)
        if found is None:
            unbacked.append(claim)
        elif said != found:
            wrong.append(f"{claim}: claimed {_shown(said)}, recorded {_shown(found)}")
    if wrong:
        raise CompactionConsistencyError(
            f"the summary claims what is not so: {'; '.join(wrong)}; nothing was written: correct the summary"
        )
    return tuple(unbacked)


def check_kept(
    kept: Mapping[str | tuple[str, str], str],
    members: Mapping[str, Member],
    held: Callable[[str, str], Held | None],
    at: Callable[[str], str | None],
) -> dict[str, dict[str, str]]:
    """Return, for each ledger, the keys that need not be read again, each with the path of its value.

    ``kept`` has the path (JSON Pointer in the compacted state) of a key, or of a (ledger, key) where several ledgers
    know the key; ``members`` the lineage's membership in each ledger; ``held`` answers what a ledger holds, ``at`` the
    digest of the value at a path (hex), both None for nothing. Raises InvalidStateError for a key that the lineage has
    not read from exactly one ledger or from the one named, CompactionConsistencyError with every value that does not
    stand where it is said to.
    """
    found: dict[str, dict[str, str]] = {}
    wrong = []
    for named, path in kept.items():
        ledger, key = _place(named, members)
        bad_path = pointer_fault(path)
        if bad_path:
            raise InvalidStateError(f"kept, key {key!r}: {bad_path}")
        if key in found.setdefault(ledger, {}):
            raise InvalidStateError(f"kept names key {key!r} of ledger {ledger!r} twice", advice="name it once")
        found[ledger][key] = path
        value, stands = held(ledger, key), at(path)
        if value is None or value.digest != stands:
            current = "nothing" if value is None else f"revision {value.revision} ({value.digest[:8]}…)"
            there = "nothing" if stands is None else f"another value ({stands[:8]}…)"
            wrong.append(f"key {key!r} of ledger {ledger!r}: the ledger has {current}, at {path} stands {there}")
    if wrong:
        raise CompactionConsistencyError(
            f"what is kept does not stand in the compacted state: {'; '.join(wrong)}; nothing was written: leave these "
            "keys out of kept and read them again, or put their whole values there"
        )
    return found


def _is_protocol(value: object) -> bool:
    """Whether ``value``, or a part of it, is a tool call, its result, or reasoning."""
    waiting = [value]  # no recursion: the text of a summary can nest as deep as it likes
    while waiting:
        part = waiting.pop()
        if isinstance(part, list | tuple):
            waiting += part
        elif isinstance(part, dict):
            if _is_marked(part):
                return True
            waiting.append(part.get("content"))
    return False


def _is_marked(part: dict[str, Any]) -> bool:
    return (
        any(part.get(call) for call in _CALLS)
        or _among(part.get("role"), _TOOL_ROLES)
        or _among(part.get("type"), _PROTOCOL)
    )


def _among(value: object, names: frozenset[str]) -> bool:
    return isinstance(value, str) and value in names


def _texts(value: object, path: str) -> list[str]:
    content = value.get("content") if isinstance(value, dict) else value
    if isinstance(content, str):
        return [content]
    if isinstance(value, dict) and isinstance(content, list | tuple):
        return [part["text"] for part in content if _is_text(part)]
    raise InvalidStateError(
        f"a summary is a text, or a message with content, not {type(value).__name__}", path, "point summary at its text"
    )


def _is_text(part: object) -> bool:
    return isinstance(part, dict) and _among(part.get("type"), _TEXTS) and isinstance(part.get("text"), str)


def _read_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _range(covered: Covered) -> tuple[str, int | None, int | None]:
    return covered.path, covered.start, covered.stop


def _ranges(covers: Iterable[Covered]) -> str:
    shown = []
    for covered in covers:
        part = "" if covered.start is None else f"[{covered.start}:{covered.stop}]"
        mark = f" ({covered.digest[:8]}…)" if covered.digest else ""
        shown.append(f"{covered.path or 'the whole state'}{part}{mark}")
    return ", ".join(shown) or "nothing"


def _check_claim(claim: object) -> None:
    if not isinstance(claim, CLAIMS):
        raise InvalidStateError(f"claims lists TermClaim, EffectClaim and KeyClaim records, not {claim!r:.100}")
    wrong = claim.fault()
    if wrong:
        raise InvalidStateError(f"the claim about {claim} cannot stand: {wrong}")


def _sides(
    claim: Claim,
    terms: Mapping[str, Binding],
    effects: Callable[[EffectClaim], str | None],
    keys: Callable[[KeyClaim], Held | None],
) -> tuple[object, object]:
    """Return what the claim says and what its source says, None if there is no source."""
    if isinstance(claim, TermClaim):
        binding = terms.get(claim.symbol)
        return claim.definition, None if binding is None else binding.definition
    if isinstance(claim, EffectClaim):
        return claim.state, effects(claim)
    value = keys(claim)
    return (claim.revision, claim.digest), None if value is None else (value.revision, value.digest)


def _shown(side: object) -> str:
    return f"revision {side[0]} ({side[1][:8]}…)" if isinstance(side, tuple) else f"{side!r:.200}"


def _place(named: object, members: Mapping[str, Member]) -> tuple[str, str]:
    """Return the ledger and the key that an item of ``kept`` names."""
    if isinstance(named, str):
        knowing = sorted(ledger for ledger, member in members.items() if named in member.known)
        if len(knowing) == 1:
            return knowing[0], named
        among = f"the ledgers {', '.join(map(repr, knowing))} all have" if knowing else "no ledger of this lineage has"
        raise InvalidStateError(
            f"kept: {among} a key {named!r} that it has read", advice="name one: kept={(ledger, key): path}"
        )
    if not (isinstance(named, tuple) and len(named) == 2):
        raise InvalidStateError(f"kept names a key, or a (ledger, key), not {named!r:.100}")
    ledger, key = check_name(named[0], "ledger"), check_name(named[1], "key")
    if ledger not in members:
        joined = ", ".join(map(repr, sorted(members))) or "none"
        raise InvalidStateError(f"kept: this lineage is no peer of ledger {ledger!r}; it is of {joined}")
    if key not in members[ledger].known:
        raise InvalidStateError(
            f"kept: the lineage has read no key {key!r} of ledger {ledger!r}", advice="leave it out"
        )
    return ledger, key
