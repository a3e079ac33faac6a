"""The outcomes that DESIGN 5.1 and 5.2 promise, as laws over any copy of the rules.

Each law is a sentence that takes ``rules`` (the modules glossary, revisions, forks) and fails if the promise is broken:
test_glossary.py runs them over the rules, test_mutants.py over broken copies of them.
"""

from __future__ import annotations

import contextlib
import unicodedata
from typing import TYPE_CHECKING, Any

import attrs

from cpstore.digest import digest
from cpstore.errors import (
    CheckpointStoreError,
    ConflictError,
    CorruptError,
    InvalidStateError,
    NotFoundError,
    RevisionConflictError,
    SemanticDriftError,
)
from cpstore.model.binding import Authority, Binding, Directive, Retirement, Scope, Supersession
from cpstore.model.fork import Citation
from cpstore.model.glossary import Change, Glossary, Reread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

AGENT, USER, DEVELOPER, SYSTEM = Authority
LAWS: dict[str, list[tuple[str, Callable[..., None], tuple[Any, ...]]]] = {}
"""Row of the table → (sentence, law, arguments)."""

TIMEOUT = Binding("timeout", "request timeout", "unit: milliseconds", authority=USER, established_at_step=1)
RANGE = Binding("range", "dates, half-open", "UTC", authority=AGENT, established_at_step=2, verbatim=True)
LOCAL = Binding("n", "rows of this page", scope=Scope.STEP_LOCAL, established_at_step=3)
HELD = Glossary((TIMEOUT, RANGE, LOCAL))
SECONDS = attrs.evolve(TIMEOUT, constraint="unit: seconds", established_at_step=None)
NEW = Binding("currency", "ISO 4217 code of the invoice")
ORDER = Directive(USER, "message 41", "seconds from now on")
TEXT = {
    TIMEOUT: "request timeout (unit: milliseconds) [user, step 1]",
    RANGE: "dates, half-open (UTC) [agent, step 2, verbatim]",
    LOCAL: "rows of this page [agent, step 3, StepLocal]",
    SECONDS: "request timeout (unit: seconds) [user]",
    NEW: "ISO 4217 code of the invoice [agent]",
}


def by(authority: Authority) -> Directive:
    return attrs.evolve(ORDER, authority=authority)


def law(row: str, *cases: tuple[Any, ...]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """File a law under its row, once for each tuple of arguments."""

    def file(check: Callable[..., None]) -> Callable[..., None]:
        name = check.__name__.replace("_", " ")
        for number, arguments in enumerate(cases or ((),)):
            LAWS.setdefault(row, []).append((f"{name} {number}" if cases else name, check, arguments))
        return check

    return file


@contextlib.contextmanager
def refused(kind: type[CheckpointStoreError], *words: str) -> Iterator[list[Any]]:
    """Expect an error of exactly this kind whose text has these words; yield a list that will hold it."""
    caught: list[Any] = []
    try:
        yield caught
    except CheckpointStoreError as error:
        assert type(error) is kind, f"{error!r} instead of {kind.__name__}"
        missing = [word for word in words if word not in str(error)]
        assert not missing, f"{missing} not in {error}"
        caught.append(error)
    else:
        raise AssertionError(f"nothing was refused; expected {kind.__name__}")


def drifts(rules: Any, differences: list[tuple[str, str, str]], *words: str, **command: Any) -> None:
    """Expect exactly these differences from ``advance`` at step 3 over HELD, and these words in the text."""
    held = command.pop("held", HELD)
    with refused(SemanticDriftError, *words) as caught:
        rules.glossary.advance(held, step=3, where="a@4", **command)
    assert caught[0].differences == tuple(differences)
    assert caught[0].where == "a@4"


def accepts(rules: Any, after: tuple[Binding, ...], *, held: Glossary = HELD, step: int = 3, **command: Any) -> Change:
    """Expect ``after`` to be in force when the change that ``advance`` answers was recorded and read again."""
    change = rules.glossary.advance(held, step=step, where="a@4", **command)
    assert change is not None
    assert Change.from_value(change.to_value()) == change
    assert rules.glossary.apply(held, change, step) == Glossary(after)
    assert change.digest == Glossary(after).digest.hex()
    return change  # type: ignore[no-any-return]


def nothing(rules: Any, **command: Any) -> None:
    assert rules.glossary.advance(command.pop("held", HELD), step=3, where="a@4", **command) is None


# --- leaves a TaskWide binding out of a declared glossary, or turns it StepLocal: dropped -----------------------------

DROPPED = "leaves out or turns StepLocal"


@law(DROPPED)
def a_declared_glossary_names_each_binding_that_it_leaves_out(rules: Any) -> None:
    drifts(rules, [("timeout", TEXT[TIMEOUT], "")], "leaves it out", declared=Glossary((RANGE,)))
    both = [("range", TEXT[RANGE], ""), ("timeout", TEXT[TIMEOUT], "")]
    drifts(rules, both, declared=Glossary(()))


@law(DROPPED)
def a_declared_glossary_may_leave_out_what_is_not_locked(rules: Any) -> None:
    nothing(rules, declared=Glossary((TIMEOUT, RANGE)))
    nothing(rules, declared=HELD)


@law(DROPPED)
def a_declared_glossary_that_leaves_out_what_the_same_call_defines_is_refused(rules: Any) -> None:
    drifts(rules, [("currency", TEXT[NEW][:-1] + ", step 3]", "")], declared=HELD, define=(NEW,))


@law(DROPPED, ("define",), ("declared",), ("supersede",))
def a_locked_binding_does_not_become_step_local(rules: Any, way: str) -> None:
    local = attrs.evolve(TIMEOUT, scope=Scope.STEP_LOCAL, established_at_step=3)
    after = "request timeout (unit: milliseconds) [user, step 3, StepLocal]"
    ways: dict[str, Any] = {
        "define": (local,),
        "declared": Glossary((local, RANGE)),
        "supersede": (Supersession(local, by(SYSTEM)),),
    }
    reasons = ["retire it"] if way == "supersede" else []
    drifts(rules, [("timeout", TEXT[TIMEOUT], after)], *reasons, **{way: ways[way]})


@law(DROPPED)
def a_declared_step_local_of_another_step_does_not_stand_for_the_lock(rules: Any) -> None:
    local = attrs.evolve(TIMEOUT, scope=Scope.STEP_LOCAL)
    drifts(rules, [("timeout", TEXT[TIMEOUT], "")], "leaves it out", declared=Glossary((local, RANGE)))


# --- changes a field of a TaskWide binding, no directive: mutated -----------------------------------------------------

MUTATED = "changes a field without a directive"


@law(
    MUTATED,
    ({"definition": "connect timeout"}, "connect timeout (unit: milliseconds) [user, step 1]"),
    ({"constraint": "unit: seconds"}, "request timeout (unit: seconds) [user, step 1]"),
    ({"constraint": ""}, "request timeout [user, step 1]"),
    ({"authority": AGENT}, "request timeout (unit: milliseconds) [agent, step 1]"),
    ({"authority": SYSTEM}, "request timeout (unit: milliseconds) [system, step 1]"),
    ({"established_at_step": 3}, "request timeout (unit: milliseconds) [user, step 3]"),
    ({"verbatim": True}, "request timeout (unit: milliseconds) [user, step 1, verbatim]"),
)
def a_changed_field_is_a_difference_whether_defined_or_declared(rules: Any, change: dict[str, Any], after: str) -> None:
    changed = attrs.evolve(TIMEOUT, **change)
    expected = [("timeout", TEXT[TIMEOUT], after)]
    drifts(rules, expected, define=(changed,))
    drifts(rules, expected, declared=Glossary((changed, RANGE)))
    drifts(rules, expected, declared=Glossary((changed, RANGE)), define=(changed,))


@law(MUTATED)
def a_step_local_binding_in_force_is_not_redefined_either(rules: Any) -> None:
    other = attrs.evolve(LOCAL, definition="rows of all pages")
    drifts(rules, [("n", TEXT[LOCAL], "rows of all pages [agent, step 3, StepLocal]")], define=(other,))


@law(MUTATED)
def every_difference_is_listed_in_one_refusal_sorted_by_symbol(rules: Any) -> None:
    turned = attrs.evolve(RANGE, definition="dates, closed")
    expected = [
        ("Timeout", TEXT[TIMEOUT], "x [agent, step 3]"),
        ("range", TEXT[RANGE], "dates, closed (UTC) [agent, step 2, verbatim]"),
        ("timeout", TEXT[TIMEOUT], TEXT[SECONDS]),
        ("zone", "", "UTC [user]"),
    ]
    command = {
        "define": (SECONDS, Binding("Timeout", "x"), turned),
        "supersede": (Supersession(Binding("zone", "UTC", authority=USER), ORDER),),
    }
    drifts(rules, expected, "4 locked definition(s)", "use define", "reads like", **command)


@law(MUTATED)
def a_refusal_without_a_special_reason_says_how_to_change_a_definition(rules: Any) -> None:
    drifts(rules, [("timeout", TEXT[TIMEOUT], TEXT[SECONDS])], "pass supersede=", define=(SECONDS,))


# --- a Supersession by order ------------------------------------------------------------------------------------------

SUPERSEDED = "supersession by order"


@law(SUPERSEDED, *[(then, order) for then in Authority for order in Authority])
def an_order_counts_from_user_up_and_not_below_what_it_replaces(rules: Any, then: Authority, order: Authority) -> None:
    held = Glossary((attrs.evolve(TIMEOUT, authority=then), RANGE))
    new = attrs.evolve(SECONDS, authority=AGENT)
    directive = by(order)
    if order is not AGENT and list(Authority).index(order) >= list(Authority).index(then):
        after = attrs.evolve(new, established_at_step=3)
        change = accepts(rules, (after, RANGE), held=held, supersede=(Supersession(new, directive),))
        assert change.superseded == (Supersession(after, directive),)
        assert change.before == (("timeout", held.get("timeout").digest.hex()),)  # type: ignore[union-attr]
        change = accepts(rules, (RANGE,), held=held, retire=(Retirement("timeout", directive),))
        assert change.retired == (Retirement("timeout", directive),)
        return
    before = f"request timeout (unit: milliseconds) [{then.value}, step 1]"
    after_text = "request timeout (unit: seconds) [agent]"
    needed = f"an order of {order.value} is not enough, it takes {'user' if then is AGENT else then.value}"
    command = {"held": held, "supersede": (Supersession(new, directive),)}
    drifts(rules, [("timeout", before, after_text)], needed, **command)
    drifts(rules, [("timeout", before, "")], needed, held=held, retire=(Retirement("timeout", directive),))


@law(SUPERSEDED)
def a_new_binding_claims_no_more_authority_than_its_order(rules: Any) -> None:
    new = attrs.evolve(SECONDS, authority=DEVELOPER)
    after = "request timeout (unit: seconds) [developer]"
    drifts(
        rules, [("timeout", TEXT[TIMEOUT], after)], "claims more authority", supersede=(Supersession(new, by(USER)),)
    )
    accepts(
        rules,
        (attrs.evolve(new, established_at_step=3), RANGE, LOCAL),
        supersede=(Supersession(new, by(DEVELOPER)),),
    )


@law(SUPERSEDED)
def the_step_of_a_superseding_binding_is_the_one_given_or_the_commits(rules: Any) -> None:
    given = attrs.evolve(SECONDS, established_at_step=2)
    accepts(rules, (given, RANGE, LOCAL), supersede=(Supersession(given, ORDER),))


@law(SUPERSEDED)
def superseding_with_what_is_in_force_changes_nothing(rules: Any) -> None:
    nothing(rules, supersede=(Supersession(TIMEOUT, ORDER),))
    nothing(rules, supersede=(Supersession(attrs.evolve(TIMEOUT, established_at_step=None), ORDER),))


@law(SUPERSEDED)
def what_is_not_in_force_is_not_superseded(rules: Any) -> None:
    drifts(rules, [("currency", "", TEXT[NEW])], "nothing to supersede", supersede=(Supersession(NEW, ORDER),))


@law(SUPERSEDED)
def an_agent_supersedes_and_retires_its_own_step_local_binding(rules: Any) -> None:
    other = attrs.evolve(LOCAL, definition="rows of all pages")
    accepts(rules, (TIMEOUT, RANGE, other), supersede=(Supersession(other, by(AGENT)),))
    accepts(rules, (TIMEOUT, RANGE), retire=(Retirement("n", by(AGENT)),))
    users = attrs.evolve(LOCAL, authority=USER)
    drifts(
        rules,
        [("n", "rows of this page [user, step 3, StepLocal]", "rows of all pages [agent, step 3, StepLocal]")],
        "it takes user",
        held=Glossary((users,)),
        supersede=(Supersession(other, by(AGENT)),),
    )


@law(SUPERSEDED)
def one_order_may_change_two_subjects(rules: Any) -> None:
    new = attrs.evolve(RANGE, definition="dates, closed")
    after = attrs.evolve(SECONDS, established_at_step=3)
    orders = (Supersession(SECONDS, ORDER), Supersession(new, ORDER))
    change = accepts(rules, (after, new, LOCAL), supersede=orders)
    assert [part.binding.symbol for part in change.superseded] == ["range", "timeout"]
    assert dict(change.before) == {"range": RANGE.digest.hex(), "timeout": TIMEOUT.digest.hex()}


@law(SUPERSEDED)
def a_declared_glossary_states_what_holds_after_the_supersession(rules: Any) -> None:
    order, after = Supersession(SECONDS, ORDER), attrs.evolve(SECONDS, established_at_step=3)
    accepts(rules, (after, RANGE, LOCAL), supersede=(order,), declared=Glossary((SECONDS, RANGE)))
    expected = [("timeout", "request timeout (unit: seconds) [user, step 3]", TEXT[TIMEOUT])]
    drifts(rules, expected, supersede=(order,), declared=HELD)


BOUND = "a directive counts once, and a restore brings back state, never locks"


@law(BOUND)
def an_order_counts_once(rules: Any) -> None:
    used = {("timeout", ORDER)}
    said = "'message 41' has been carried out before"
    order = Supersession(SECONDS, ORDER)
    drifts(rules, [("timeout", TEXT[TIMEOUT], TEXT[SECONDS])], said, supersede=(order,), used=used)
    drifts(rules, [("timeout", TEXT[TIMEOUT], "")], said, retire=(Retirement("timeout", ORDER),), used=used)
    accepts(rules, (LOCAL, RANGE), retire=(Retirement("timeout", ORDER),), used={("range", ORDER)})
    accepts(rules, (LOCAL, RANGE), retire=(Retirement("timeout", by(SYSTEM)),), used=used)


@law(BOUND)
def an_order_counts_once_for_a_restore_too(rules: Any) -> None:
    now, given = Glossary((attrs.evolve(SECONDS, established_at_step=2), RANGE)), {"step": 1, "where": "a@4"}
    used = {("timeout", ORDER)}
    for way in ({"supersede": (Supersession(TIMEOUT, ORDER),)}, {"reread": {"timeout": ORDER}}):
        with refused(SemanticDriftError, "'message 41' has been carried out before"):
            rules.glossary.restore_glossary(HELD, now, used=used, **way, **given)
        rules.glossary.restore_glossary(HELD, now, **way, **given)


@law(BOUND)
def a_restore_keeps_todays_bindings_and_ends_step_local_ones(rules: Any) -> None:
    then, new = Glossary((TIMEOUT,)), attrs.evolve(NEW, established_at_step=3)
    made = rules.glossary.restore_glossary(then, Glossary((*HELD, new)), step=1, where="a@4")
    assert made.glossary == Glossary((TIMEOUT, RANGE, new))
    assert (made.change.established, made.change.superseded, made.rereads) == ((), (), ())
    assert rules.glossary.apply(rules.glossary.inherit(Glossary((*HELD, new))), made.change, 1) == made.glossary
    with refused(SemanticDriftError, "another meaning"):
        rules.glossary.restore_glossary(then, Glossary((RANGE,)), step=1, where="a@4")


# --- a supersession without a new binding; retirement -----------------------------------------------------------------

RETIRED = "supersession without a binding, retirement"


@law(RETIRED)
def a_supersession_needs_a_binding_and_says_that_retirement_ends_one(rules: Any) -> None:
    with refused(InvalidStateError, "Retirement(symbol, directive)", "no new binding"):
        rules.glossary.advance(HELD, step=3, where="a@4", supersede=(Supersession(None, ORDER),))  # type: ignore[arg-type]


@law(RETIRED)
def what_is_not_in_force_is_not_retired(rules: Any) -> None:
    drifts(rules, [("currency", "", "")], "nothing to retire", retire=(Retirement("currency", ORDER),))


@law(RETIRED)
def retirements_are_recorded_sorted_with_the_binding_they_are_bound_to(rules: Any) -> None:
    ends = (Retirement("timeout", ORDER), Retirement("range", ORDER))
    change = accepts(rules, (LOCAL,), retire=ends)
    assert [end.symbol for end in change.retired] == ["range", "timeout"]
    assert dict(change.before) == {"range": RANGE.digest.hex(), "timeout": TIMEOUT.digest.hex()}


@law(RETIRED)
def a_symbol_is_not_retired_and_declared_in_one_call(rules: Any) -> None:
    end = (Retirement("timeout", ORDER),)
    accepts(rules, (RANGE, LOCAL), retire=end, declared=Glossary((RANGE,)))
    drifts(rules, [("timeout", "", TEXT[TIMEOUT])], "retired and declared", retire=end, declared=HELD)


# --- malformed, twice, alike ------------------------------------------------------------------------------------------

MALFORMED = "two of one symbol, blanks, unknown scope, unfit symbols"


@law(MALFORMED)
def a_symbol_is_named_once_in_a_call(rules: Any) -> None:
    twin = attrs.evolve(NEW, definition="another")
    said = "named twice"
    drifts(rules, [("currency", TEXT[NEW], "another [agent]")], said, define=(NEW, twin))
    drifts(rules, [("currency", TEXT[NEW], TEXT[NEW])], said, define=(NEW, NEW))
    order, end = Supersession(SECONDS, ORDER), Retirement("timeout", ORDER)
    drifts(rules, [("timeout", TEXT[SECONDS], TEXT[SECONDS])], said, supersede=(order, order))
    drifts(rules, [("timeout", TEXT[TIMEOUT], TEXT[SECONDS])], said, define=(TIMEOUT,), supersede=(order,))
    drifts(rules, [("timeout", TEXT[SECONDS], "")], said, supersede=(order,), retire=(end,))
    drifts(rules, [("timeout", "", "")], said, retire=(end, end))


@law(MALFORMED)
def a_declared_glossary_has_one_binding_of_a_symbol(rules: Any) -> None:
    twins = Glossary((TIMEOUT, RANGE, TIMEOUT))
    drifts(rules, [("timeout", TEXT[TIMEOUT], TEXT[TIMEOUT])], "two bindings", declared=twins)


@law(
    MALFORMED,
    ({"definition": ""}, "definition is blank"),
    ({"definition": " \n"}, "definition is blank"),
    ({"definition": 5}, "not text, but int"),
    ({"definition": "a\ud800"}, "lone surrogate"),
    ({"constraint": " \t"}, "constraint is blank"),
    ({"constraint": None}, "not text, but NoneType"),
    ({"symbol": ""}, "symbol is blank"),
    ({"symbol": 7}, "not text, but int"),
    ({"scope": "Everywhere"}, "scope 'Everywhere' is unknown"),
    ({"scope": "TaskWide"}, "Scope.TASK_WIDE"),
    ({"authority": "user"}, "authority 'user' is unknown"),
    ({"established_at_step": -1}, "is not a step"),
    ({"established_at_step": True}, "is not a step"),
    ({"established_at_step": 1 << 53}, "is not a step"),
    ({"verbatim": 1}, "is not a bool"),
)
def a_malformed_binding_is_refused_however_it_comes(rules: Any, change: dict[str, Any], said: str) -> None:
    wrong = attrs.evolve(NEW, **change)
    for command in (
        {"define": (wrong,)},
        {"supersede": (Supersession(wrong, ORDER),)},
        {"declared": Glossary((wrong,))},
    ):
        with refused(InvalidStateError, said):
            rules.glossary.advance(HELD, step=3, where="a@4", **command)


@law(
    MALFORMED,
    (" rate", "begins or ends with a blank"),
    ("rate\u00a0", "begins or ends with a blank"),
    ("ra\x00te", "control character (U+0000) at position 2"),
    ("ra\nte", "control character (U+000A)"),
    ("ra\u200bte", "format character (U+200B)"),
    ("\u202erate", "format character (U+202E) at position 0"),
    ("ra\u2028te", "line separator"),
    ("rate\U000effff", "unassigned character"),
    (unicodedata.normalize("NFD", "naïve"), "not in Unicode normal form NFC: write 'naïve'"),
    ("\u3164", "no character that can be seen"),
)
def an_unfit_symbol_is_refused_with_the_reason(rules: Any, symbol: str, said: str) -> None:
    wrong = attrs.evolve(NEW, symbol=symbol)
    for command in ({"define": (wrong,)}, {"declared": Glossary((TIMEOUT, RANGE, wrong))}):
        with refused(InvalidStateError, said):
            rules.glossary.advance(HELD, step=3, where="a@4", **command)


SEEN_BY_NOBODY = (
    "\u200b", "\u3164", "\u115f\u1160\uffa0", "\u2800", "\ufe0f", "\u00ad\u2060", "\x00\u2028\u2029 \u200b",
)  # fmt: skip


@law(MALFORMED, *((text,) for text in SEEN_BY_NOBODY))
def a_text_of_which_nothing_can_be_seen_is_refused_however_it_comes(rules: Any, text: str) -> None:
    unseen = "no character that can be seen"
    for field in ("definition", "constraint"):
        wrong, other = attrs.evolve(NEW, **{field: text}), attrs.evolve(TIMEOUT, **{field: text})
        ways: list[dict[str, Any]] = [{"define": (wrong,)}, {"declared": Glossary((TIMEOUT, RANGE, wrong))}]
        for command in [*ways, {"supersede": (Supersession(other, ORDER),)}]:
            with refused(InvalidStateError, f"the {field} of ", unseen):
                rules.glossary.advance(HELD, step=3, where="a@4", **command)
    for field in ("reference", "text"):
        order = attrs.evolve(ORDER, **{field: text})
        for command in ({"supersede": (Supersession(SECONDS, order),)}, {"retire": (Retirement("timeout", order),)}):
            with refused(InvalidStateError, f"the {field} of the order on 'timeout'", unseen):
                rules.glossary.advance(HELD, step=3, where="a@4", **command)


@law(MALFORMED)
def a_text_of_which_something_can_be_seen_passes_and_so_does_what_is_in_force(rules: Any) -> None:
    family = Binding("family", "\U0001f468\u200d\U0001f469 \u2764\ufe0f", established_at_step=3)
    accepts(rules, (TIMEOUT, RANGE, LOCAL, family), define=(family,))
    old = Glossary((Binding("old", "\u200b", established_at_step=1),))
    nothing(rules, held=old, define=old.bindings)
    nothing(rules, held=old, declared=old)
    with refused(InvalidStateError, "the constraint of 'old'"):
        rules.glossary.advance(old, step=3, where="a@4", define=(Binding("old", "\u200b", "\u200b"),))


@law(MALFORMED)
def all_that_is_malformed_is_said_at_once(rules: Any) -> None:
    said = (
        "the Binding 'a' cannot stand",
        "'b ' begins or ends",
        "the Retirement 'timeout'",
        "the Supersession 'range'",
    )
    with refused(InvalidStateError, "definition is blank", "reference is blank", *said):
        rules.glossary.advance(
            HELD,
            step=3,
            where="a@4",
            define=(Binding("a", ""), Binding("b ", "x")),
            supersede=(Supersession(RANGE, attrs.evolve(ORDER, text=" ")),),
            retire=(Retirement("timeout", attrs.evolve(ORDER, reference=" ")),),
        )


@law(
    MALFORMED,
    ({"define": ("timeout",)}, "a Binding is needed"),
    ({"supersede": (SECONDS,)}, "a Supersession is needed"),
    ({"retire": ("timeout",)}, "a Retirement is needed"),
    ({"retire": (Retirement(" ", ORDER),)}, "symbol is blank"),
    ({"retire": (Retirement("timeout", "message 41"),)}, "no directive"),  # type: ignore[arg-type]
    ({"supersede": (Supersession(SECONDS, None),)}, "no directive"),  # type: ignore[arg-type]
    ({"supersede": (Supersession(SECONDS, Directive(USER, "message 41", "")),)}, "text is blank"),
    ({"supersede": (Supersession(SECONDS, Directive("user", "message 41", "x")),)}, "unknown"),  # type: ignore[arg-type]
)
def an_order_has_its_parts(rules: Any, command: dict[str, Any], said: str) -> None:
    with refused(InvalidStateError, said):
        rules.glossary.advance(HELD, step=3, where="a@4", **command)


@law(
    MALFORMED,
    ("Timeout", "timeout"),
    ("TIMEOUT", "timeout"),
    ("\uff54imeout", "timeout"),  # full-width t
    ("\ufb01x", "fix"),  # the ligature
    ("time\u034fout", "timeout"),  # combining grapheme joiner
    ("timeout\ufe0f", "timeout"),  # variation selector
    ("STRASSE", "straße"),
)
def a_symbol_that_reads_like_a_locked_one_is_refused(rules: Any, symbol: str, like: str) -> None:
    names = ("fix", "straße", "timeout")
    held = Glossary(Binding(name, f"is {name}", established_at_step=0) for name in names)
    for scope, mark in ((Scope.TASK_WIDE, ""), (Scope.STEP_LOCAL, ", StepLocal")):
        expected = [(symbol, f"is {like} [agent, step 0]", f"y [agent, step 3{mark}]")]
        new = Binding(symbol, "y", scope=scope)
        drifts(rules, expected, f"reads like {like!r}", held=held, define=(new,))


@law(MALFORMED)
def two_new_symbols_that_read_alike_are_refused_unless_neither_is_locked(rules: Any) -> None:
    one, two = Binding("a", "x", scope=Scope.STEP_LOCAL), Binding("A", "y")
    expected = [("a", "y [agent, step 3]", "x [agent, step 3, StepLocal]")]
    drifts(rules, expected, "reads like 'A'", held=Glossary(()), define=(one, two))
    drifts(rules, expected, held=Glossary(()), define=(two, one))
    expected = [("A", "2 [agent, step 3]", "1 [agent, step 3, StepLocal]")]
    local = Binding("A", "1", scope=Scope.STEP_LOCAL)
    drifts(rules, expected, "reads like 'a'", held=Glossary(()), define=(local, Binding("a", "2")))
    three = attrs.evolve(one, symbol="A", definition="z")
    after = tuple(attrs.evolve(binding, established_at_step=3) for binding in (one, three))
    accepts(rules, after, held=Glossary(()), define=(one, three))
    both = [("b", "1 [agent, step 3]", "2 [agent, step 3]")]
    drifts(rules, both, held=Glossary(()), define=(Binding("b", "2"), Binding("B", "1")))


@law(MALFORMED)
def a_new_lock_must_not_read_like_a_step_local_symbol_in_force(rules: Any) -> None:
    drifts(
        rules, [("N", TEXT[LOCAL], "nitrogen [agent, step 3]")], "reads like 'n'", define=(Binding("N", "nitrogen"),)
    )


@law(MALFORMED)
def what_is_in_force_stays_usable_though_its_symbol_would_be_refused_today(rules: Any) -> None:
    odd = Binding("a\u0378", "from a newer Unicode", established_at_step=1)  # unassigned up to Unicode 16
    like = (Binding("B", "x", established_at_step=1), Binding("b", "y", established_at_step=1))
    held = Glossary((odd, *like))
    nothing(rules, held=held, define=(odd,), declared=held)
    after = attrs.evolve(NEW, established_at_step=3)
    accepts(rules, (odd, *like, after), held=held, define=(NEW,))


# --- declared digest --------------------------------------------------------------------------------------------------

DIGEST = "declared digest differs"


@law(DIGEST)
def a_declared_digest_is_compared_with_the_computed_one(rules: Any) -> None:
    locked = (TIMEOUT, RANGE)
    wrong = digest(b"another")
    expected = [("(digest)", HELD.digest.hex(), wrong.hex())]
    drifts(rules, expected, "declared digest", declared=Glossary(locked, wrong))
    nothing(rules, declared=Glossary(locked, HELD.digest))
    nothing(rules, declared=Glossary(locked, HELD.digest.hex()))


@law(DIGEST)
def a_declared_digest_may_be_made_before_or_after_the_steps_are_filled(rules: Any) -> None:
    after = (TIMEOUT, RANGE, attrs.evolve(NEW, established_at_step=3))
    for made in (Glossary((TIMEOUT, RANGE, NEW)), Glossary(after)):
        accepts(rules, (*after, LOCAL), declared=Glossary((TIMEOUT, RANGE, NEW), made.digest))
    stale = [("(digest)", Glossary(after).digest.hex(), HELD.digest.hex())]
    drifts(rules, stale, declared=Glossary((TIMEOUT, RANGE, NEW), HELD.digest))


# --- names only new bindings; no-op; step -----------------------------------------------------------------------------

CARRIED = "new bindings, re-runs, steps"


@law(CARRIED)
def the_others_are_carried_forward(rules: Any) -> None:
    after = attrs.evolve(NEW, established_at_step=3)
    change = accepts(rules, (TIMEOUT, RANGE, LOCAL, after), define=(NEW,))
    assert change.established == (after,)
    assert (change.superseded, change.retired, change.before) == ((), (), ())


@law(CARRIED)
def a_declared_glossary_establishes_what_it_adds(rules: Any) -> None:
    after = attrs.evolve(NEW, established_at_step=3)
    accepts(rules, (TIMEOUT, RANGE, LOCAL, after), declared=Glossary((TIMEOUT, RANGE, NEW)))
    accepts(rules, (TIMEOUT, RANGE, LOCAL, after), declared=Glossary((TIMEOUT, RANGE, NEW)), define=(NEW,))
    accepts(rules, (after,), held=Glossary(()), declared=Glossary((NEW,)))


@law(CARRIED)
def new_bindings_are_recorded_sorted_by_symbol(rules: Any) -> None:
    b, a = Binding("b", "1", established_at_step=3), Binding("a", "2", established_at_step=3)
    assert accepts(rules, (a, b), held=Glossary(()), define=(b, a)).established == (a, b)


@law(CARRIED)
def defining_what_is_in_force_again_changes_nothing(rules: Any) -> None:
    nothing(rules)
    nothing(rules, define=(TIMEOUT, LOCAL))
    nothing(
        rules, define=(attrs.evolve(TIMEOUT, established_at_step=None), attrs.evolve(RANGE, established_at_step=None))
    )
    nothing(rules, declared=Glossary(attrs.evolve(binding, established_at_step=None) for binding in HELD))


@law(CARRIED)
def a_given_step_is_kept(rules: Any) -> None:
    given = attrs.evolve(NEW, established_at_step=0)
    assert accepts(rules, (TIMEOUT, RANGE, LOCAL, given), define=(given,)).established == (given,)


# --- StepLocal --------------------------------------------------------------------------------------------------------

STEP_LOCAL = "StepLocal"


@law(STEP_LOCAL)
def a_step_local_binding_holds_for_its_step_only(rules: Any) -> None:
    assert rules.glossary.in_force(HELD, 3) == HELD
    assert rules.glossary.in_force(HELD, 4) == Glossary((TIMEOUT, RANGE))
    after = attrs.evolve(LOCAL, definition="other", established_at_step=4)
    new = attrs.evolve(after, established_at_step=None)
    accepts(rules, (TIMEOUT, RANGE, after), step=4, define=(new,))
    accepts(rules, (TIMEOUT, RANGE, after), step=4, declared=Glossary((TIMEOUT, RANGE, new)))


@law(STEP_LOCAL)
def a_step_local_binding_of_another_step_cannot_be_made(rules: Any) -> None:
    wrong = attrs.evolve(LOCAL, symbol="k", established_at_step=2)
    said = "'k' holds only for step 3, not 2"
    with refused(InvalidStateError, said):
        rules.glossary.advance(HELD, step=3, where="a@4", define=(wrong,))
    with refused(InvalidStateError, said):
        rules.glossary.advance(HELD, step=3, where="a@4", supersede=(Supersession(wrong, ORDER),))
    nothing(
        rules, declared=Glossary((TIMEOUT, RANGE, wrong))
    )  # it held for another step: nothing is said about this one


@law(STEP_LOCAL)
def a_step_local_binding_is_not_under_the_lock(rules: Any) -> None:
    new = Binding("k", "x", scope=Scope.STEP_LOCAL)
    change = accepts(rules, (TIMEOUT, RANGE, LOCAL, attrs.evolve(new, established_at_step=3)), define=(new,))
    assert change.digest == HELD.digest.hex()


@law(STEP_LOCAL)
def a_step_local_binding_never_shadows_a_locked_symbol(rules: Any) -> None:
    shadow = Binding("timeout", "of this page", scope=Scope.STEP_LOCAL)
    drifts(rules, [("timeout", TEXT[TIMEOUT], "of this page [agent, StepLocal]")], define=(shadow,))


@law(STEP_LOCAL)
def an_agent_may_lock_what_it_held_for_a_step(rules: Any) -> None:
    locked = attrs.evolve(LOCAL, scope=Scope.TASK_WIDE)
    accepts(rules, (TIMEOUT, RANGE, locked), supersede=(Supersession(locked, by(AGENT)),))


# --- reading back -----------------------------------------------------------------------------------------------------

RECORDED = "what was recorded is checked when it is read"


@law(RECORDED)
def a_directive_counts_for_the_binding_it_was_given_for_only(rules: Any) -> None:
    order = rules.glossary.advance(HELD, step=3, where="a@4", supersede=(Supersession(SECONDS, ORDER),))
    end = rules.glossary.advance(HELD, step=3, where="a@4", retire=(Retirement("timeout", ORDER),))
    others = (attrs.evolve(TIMEOUT, definition="else"), attrs.evolve(TIMEOUT, established_at_step=0))
    for other in (*others, None):
        held = Glossary([RANGE, LOCAL] + ([other] if other else []))
        with refused(CorruptError, "'timeout' was superseded, but not from what was in force"):
            rules.glossary.apply(held, order, 3)
        with refused(CorruptError, "'timeout' was retired, but not from what was in force"):
            rules.glossary.apply(held, end, 3)
    with refused(CorruptError, "superseded"):
        rules.glossary.apply(HELD, attrs.evolve(order, before=()), 3)
    with refused(CorruptError, "retired"):
        rules.glossary.apply(HELD, attrs.evolve(end, before=()), 3)
    gone = attrs.evolve(end, before=(("timeout", ""),), digest=Glossary((RANGE,)).digest.hex())
    with refused(CorruptError, "retired"):
        rules.glossary.apply(Glossary((RANGE,)), gone, 3)


@law(RECORDED)
def a_change_that_makes_another_lock_than_recorded_is_corrupt(rules: Any) -> None:
    change = rules.glossary.advance(HELD, step=3, where="a@4", define=(NEW,))
    with refused(CorruptError, "recorded lock", "step 3"):
        rules.glossary.apply(Glossary((TIMEOUT,)), change, 3)
    with refused(CorruptError, "established twice"):
        rules.glossary.apply(Glossary((*HELD, attrs.evolve(NEW, established_at_step=3))), change, 3)


@law(RECORDED)
def folding_drops_the_step_local_bindings_of_other_steps(rules: Any) -> None:
    change = rules.glossary.advance(HELD, step=4, where="a@4", define=(NEW,))
    after = attrs.evolve(NEW, established_at_step=4)
    assert rules.glossary.apply(HELD, change, 4) == Glossary((TIMEOUT, RANGE, after))


# --- forks ------------------------------------------------------------------------------------------------------------

FORKED = "fork, restore, import"
NOW = Glossary((attrs.evolve(SECONDS, established_at_step=5), RANGE, LOCAL))
BACK = Supersession(attrs.evolve(TIMEOUT, established_at_step=None), ORDER)
SHIFT = ("timeout", TEXT[TIMEOUT], "request timeout (unit: seconds) [user, step 5]")


def forked(rules: Any, then: Glossary, head: Glossary, **command: Any) -> Any:
    plan = rules.glossary.fork_glossary(then, head, step=3, where="b@1", **command)
    if plan.change is None:
        assert len(plan.glossary) == 0
    else:
        read = Change.from_value(plan.change.to_value())
        assert rules.glossary.apply(Glossary(()), read, 3) == plan.glossary
    assert tuple(Reread.from_value(part) for part in plan.extra().get("reread", [])) == plan.rereads
    return plan


@law(FORKED)
def a_fork_inherits_every_locked_binding_and_no_step_local_one(rules: Any) -> None:
    plan = forked(rules, HELD, HELD)
    assert plan.glossary == rules.glossary.inherit(HELD) == Glossary((TIMEOUT, RANGE))
    assert plan.change.established == (RANGE, TIMEOUT)
    assert plan.extra() == {}
    empty = forked(rules, Glossary((LOCAL,)), Glossary((LOCAL,)))
    assert (empty.change, empty.extra()) == (None, {})


@law(FORKED)
def the_locks_of_the_head_stay_in_force_below_it(rules: Any) -> None:
    assert forked(rules, Glossary(()), HELD).glossary == Glossary((TIMEOUT, RANGE))
    assert forked(rules, Glossary((RANGE, LOCAL)), HELD).glossary == Glossary((TIMEOUT, RANGE))


@law(FORKED)
def what_moved_since_is_named_with_both_meanings(rules: Any) -> None:
    gone = Glossary((attrs.evolve(SECONDS, established_at_step=5),))
    assert rules.glossary.moved(HELD, HELD) == ()
    assert rules.glossary.moved(HELD, NOW) == (SHIFT,)
    assert rules.glossary.moved(HELD, gone) == (("range", TEXT[RANGE], ""), SHIFT)
    with refused(SemanticDriftError, "another meaning", "reread={symbol: Directive}") as caught:
        forked(rules, HELD, gone)
    assert caught[0].differences == (("range", TEXT[RANGE], ""), SHIFT)
    assert caught[0].where == "b@1"
    for change in ({"definition": "x"}, {"verbatim": True}):
        assert rules.glossary.moved(HELD, Glossary((attrs.evolve(TIMEOUT, **change), RANGE)))


@law(FORKED)
def who_settled_a_meaning_and_when_does_not_move_it(rules: Any) -> None:
    later = Glossary((attrs.evolve(TIMEOUT, authority=SYSTEM, established_at_step=9), RANGE))
    assert rules.glossary.moved(HELD, later) == ()
    assert forked(rules, HELD, later).glossary == later


@law(FORKED)
def a_symbol_that_is_only_step_local_now_has_moved(rules: Any) -> None:
    now = Glossary((attrs.evolve(TIMEOUT, scope=Scope.STEP_LOCAL), RANGE))
    assert rules.glossary.moved(HELD, now) == (("timeout", TEXT[TIMEOUT], ""),)
    assert rules.glossary.moved(Glossary((LOCAL,)), Glossary(())) == ()


@law(FORKED)
def a_supersession_in_the_same_call_brings_the_old_meaning_back(rules: Any) -> None:
    plan = forked(rules, HELD, NOW, supersede=(BACK,))
    assert plan.glossary == Glossary((attrs.evolve(TIMEOUT, established_at_step=3), RANGE))
    assert plan.change.before == (("timeout", NOW.get("timeout").digest.hex()),)  # type: ignore[union-attr]
    assert plan.change.established == rules.glossary.inherit(NOW).bindings
    with refused(SemanticDriftError, "it takes user"):
        forked(rules, HELD, NOW, supersede=(attrs.evolve(BACK, directive=by(AGENT)),))
    third = attrs.evolve(BACK.binding, constraint="unit: minutes")
    with refused(SemanticDriftError) as caught:
        forked(rules, HELD, NOW, supersede=(attrs.evolve(BACK, binding=third),))
    assert caught[0].differences == (("timeout", TEXT[TIMEOUT], "request timeout (unit: minutes) [user, step 3]"),)


@law(FORKED)
def a_retired_symbol_is_brought_back_by_order_too(rules: Any) -> None:
    now = Glossary((RANGE,))
    plan = forked(rules, HELD, now, supersede=(BACK,))
    assert plan.glossary == Glossary((attrs.evolve(TIMEOUT, established_at_step=3), RANGE))
    assert plan.change.before == (("timeout", ""),)
    with refused(SemanticDriftError, "it takes user") as caught:
        forked(rules, HELD, now, supersede=(attrs.evolve(BACK, directive=by(AGENT)),))
    assert ("timeout", TEXT[TIMEOUT], "request timeout (unit: milliseconds) [user]") in caught[0].differences
    lone = forked(rules, Glossary((TIMEOUT,)), Glossary(()), supersede=(BACK,))
    assert lone.glossary.digest.hex() == lone.change.digest
    never = Supersession(NEW, ORDER)
    with refused(SemanticDriftError, "nothing to supersede"):
        forked(rules, HELD, HELD, supersede=(never,))


@law(FORKED)
def a_symbol_brought_back_must_not_read_like_a_lock_of_today(rules: Any) -> None:
    now = Glossary((RANGE, Binding("TimeOut", "x", established_at_step=7)))
    with refused(SemanticDriftError, "reads like 'TimeOut'"):
        forked(rules, HELD, now, supersede=(BACK,))


@law(FORKED)
def a_fork_may_supersede_what_has_not_moved(rules: Any) -> None:
    order = Supersession(attrs.evolve(RANGE, definition="dates, closed"), ORDER)
    with refused(SemanticDriftError, "another meaning"):
        forked(rules, HELD, HELD, supersede=(order,))
    plan = forked(rules, Glossary((TIMEOUT,)), HELD, supersede=(order,))
    assert plan.glossary == Glossary((TIMEOUT, order.binding))


@law(
    FORKED, *[(then, now, order) for then in (AGENT, USER, SYSTEM) for now in (AGENT, DEVELOPER) for order in Authority]
)
def a_reread_takes_the_authority_of_both_meanings(
    rules: Any, then: Authority, now: Authority, order: Authority
) -> None:
    old, new = attrs.evolve(TIMEOUT, authority=then), attrs.evolve(NOW.bindings[2], authority=now)
    assert new.symbol == "timeout"
    rising = list(Authority)
    directive = by(order)
    for after in (new, None):
        head = Glossary([RANGE] + ([after] if after else []))
        needed = max(rising.index(then), rising.index(now) if after else 0, 1)
        command: dict[str, Any] = {"reread": {"timeout": directive}}
        if rising.index(order) >= needed:
            plan = forked(rules, Glossary((old, RANGE)), head, **command)
            named = after.digest.hex() if after else ""
            assert plan.rereads == (Reread("timeout", old.digest.hex(), named, directive),)
            assert plan.glossary == head
        else:
            with refused(SemanticDriftError, f"it takes {rising[needed].value}"):
                forked(rules, Glossary((old, RANGE)), head, **command)


@law(FORKED)
def a_reread_names_what_has_moved_and_who_ordered_it(rules: Any) -> None:
    with refused(InvalidStateError, "b@1: reread names 'range', 'zone', which has not moved"):
        forked(rules, HELD, NOW, reread={"timeout": ORDER, "zone": ORDER, "range": ORDER})
    with refused(InvalidStateError, "'timeout', which has not moved"):
        forked(rules, HELD, NOW, reread={"timeout": ORDER}, supersede=(BACK,))
    with refused(InvalidStateError, "reference is blank"):
        forked(rules, HELD, NOW, reread={"timeout": attrs.evolve(ORDER, reference="")})
    with refused(InvalidStateError, "no new binding"):
        forked(rules, HELD, NOW, supersede=(Supersession(None, ORDER),))  # type: ignore[arg-type]


# --- texts ------------------------------------------------------------------------------------------------------------


@law("differences are readable")
def a_long_text_is_cut_and_named_by_its_digest(rules: Any) -> None:
    exact, long = "x" * 200, "x" * 201
    assert rules.glossary.describe(Binding("a", exact)) == f"{exact} [agent]"
    cut = f"{exact}… (SHA-256 {digest(long.encode()).hex()[:8]})"
    assert rules.glossary.describe(Binding("a", long, long)) == f"{cut} ({cut}) [agent]"


@law("differences are readable")
def a_binding_is_described_with_all_its_fields(rules: Any) -> None:
    assert {binding: rules.glossary.describe(binding) for binding in TEXT} == TEXT


# --- revisions and steps ----------------------------------------------------------------------------------------------

REVISIONS = "no blind commit"


@law(REVISIONS, (None, None, 0), (0, None, 0), (None, 0, 0), (3, None, 3), (None, 3, 3), (3, 1, 3), (1, 1, 1))
def an_act_against_the_head_passes(rules: Any, expected: int | None, seen: int | None, head: int) -> None:
    rules.revisions.check("a", expected=expected, seen=seen, head=head)


@law(
    REVISIONS,
    (None, None, 3, None),
    (None, None, 1, None),
    (None, 2, 3, 2),
    (None, 4, 3, 4),
    (2, 3, 3, 2),
    (4, 3, 3, 4),
    (0, 3, 3, 0),
    (0, None, 1, 0),
    (1, None, 0, 1),
    (None, 2, 0, 2),
)
def any_other_act_conflicts(rules: Any, expected: int | None, seen: int | None, head: int, named: int | None) -> None:
    with refused(RevisionConflictError, "'a'") as caught:
        rules.revisions.check("a", expected=expected, seen=seen, head=head)
    assert (caught[0].expected, caught[0].head) == (named, head)


@law(REVISIONS, (True,), (-1,), (1.0,), ("1",))
def an_expected_revision_is_an_integer(rules: Any, expected: Any) -> None:
    with refused(InvalidStateError, "expected_revision"):
        rules.revisions.check("a", expected=expected, seen=None, head=1)


@law(REVISIONS, (1, 1), (3, 2), (2, 0))
def an_act_passes_whose_handle_looked_since_the_last_restore(rules: Any, seen: int, since: int) -> None:
    rules.revisions.check_epoch("a", seen=seen, since=since, head=4)


@law(REVISIONS, (None, 0), (None, 3), (2, 3))
def an_act_is_refused_whose_handle_looked_before_it_or_never(rules: Any, seen: int | None, since: int) -> None:
    with refused(RevisionConflictError):
        rules.revisions.check_epoch("a", seen=seen, since=since, head=4)


@law(REVISIONS, (0, None), (5, None), (3, 3), (4, 3), ((1 << 53) - 1, 0))
def a_step_repeats_or_rises(rules: Any, step: int, head: int | None) -> None:
    rules.revisions.check_step("a", step, head)


@law(REVISIONS, (2, 3), (0, 1))
def a_step_does_not_fall(rules: Any, step: int, head: int) -> None:
    with refused(InvalidStateError, f"'a' is at step {head}, the commit says step {step}", "restore or fork"):
        rules.revisions.check_step("a", step, head)


@law(REVISIONS, (True,), (-1,), (1 << 53,), (1.0,), (None,))
def a_step_is_an_integer_of_53_bits(rules: Any, step: Any) -> None:
    with refused(InvalidStateError, "a step is an integer"):
        rules.revisions.check_step("a", step, None)


@law("forks")
def a_fork_cites_an_existing_revision_and_takes_a_free_id(rules: Any) -> None:
    given: dict[str, Any] = {"parent": "a", "head": 3, "entry": "ab" * 32}
    rules.forks.check("b", exists=False)
    for revision in (1, 2, 3):
        assert rules.forks.plan("b", exists=False, revision=revision, **given) == Citation("a", revision, "ab" * 32)
    for wrong in (0, 4, -1, True, 1.0):
        with refused(NotFoundError, "the revisions 1 to 3"):
            rules.forks.plan("b", exists=False, revision=wrong, **given)
    with refused(ConflictError, "'b' exists already"):
        rules.forks.check("b", exists=True)
    with refused(ConflictError, "'b' exists already"):
        rules.forks.plan("b", exists=True, revision=1, **given)
