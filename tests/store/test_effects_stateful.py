"""Effects, forks and restores in any order against a plain model of DESIGN 5.4 and 5.5, errors included."""

from __future__ import annotations

import gc
import shutil
import tempfile
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

import cpstore
from cpstore import Acknowledgement, EffectPolicy, EffectState, Signer, Verdict
from cpstore.errors import (
    ConflictError,
    EffectBusyError,
    EffectConflictError,
    EffectInDoubtError,
    RevisionConflictError,
    UnsafeRollbackError,
)

SIGNER = Signer.from_seed(bytes(range(32)))
NAMES = ("a", "a/1", "a/2", "a/1/1")
ALL = 1 << 40
WORD = {"who": "Ada", "why": "looked"}
STARTED, COMPLETED, FAILED, HAPPENED, NOT_HAPPENED, COMPENSATED, CANCELLED = EffectState

seeds = st.integers(0, 1 << 20)
claims = st.fixed_dictionaries(
    {
        "name": st.sampled_from(["pay", "pay", "mail"]),
        "args": st.sampled_from([1, 2]),
        "key": st.sampled_from([None, None, None, None, "k"]),
        "occurrence": st.sampled_from([1, 1, 1, 2]),
        "scope": st.sampled_from(["family", "family", "lineage"]),
        "policy": st.sampled_from([*[EffectPolicy.AT_MOST_ONCE] * 4, *EffectPolicy]),
    }
)


@attrs.define
class Known:
    """What the model has of an effect."""

    claim: dict[str, Any]
    lineage: str
    policy: EffectPolicy
    state: EffectState
    attempt: int = 0
    released: bool = False
    error: str = ""
    who: str = ""
    result: Any = None
    recorded: bool = False
    evidence: int = 0
    record: Any = None

    @property
    def kind(self) -> int:
        if self.policy.repeatable:
            return self.policy.rank
        if self.recorded and self.claim["key"] is None:
            return 3
        return 4 if self.claim["scope"] == "lineage" else 2


@attrs.define
class Line:
    """What the model has of a lineage: places by seq in the log, revisions, events of effects, restores."""

    parent: Any = None  # (parent, seq of its revision, newest seq of it then)
    leaves: list[int] = attrs.field(factory=list)
    revisions: list[tuple[Any, int, int]] = attrs.field(factory=list)  # state, seq, watermark
    events: list[tuple[int, Any]] = attrs.field(factory=list)
    restores: list[tuple[int, int]] = attrs.field(factory=list)  # seq, watermark
    epoch: int = 0  # the revision of the newest restore

    @property
    def seq(self) -> int:
        return len(self.leaves)

    def spans(self, since: int, upto: int) -> set[Any]:
        """Return the effects whose entries here reach into an interval."""
        first: dict[Any, int] = {}
        last: dict[Any, int] = {}
        for seq, identity in self.events:
            first.setdefault(identity, seq)
            last[identity] = seq
        return {one for one in last if last[one] > since and first[one] <= upto}


class Life(RuleBasedStateMachine):
    """One family in two stores on one file, each with its own handles."""

    @initialize()
    def begin_store(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="cpstore-"))
        self.lines: dict[str, Line] = {}
        self.effects: dict[Any, Known] = {}
        self.policies: dict[str, EffectPolicy] = {}
        self.held: list[tuple[Any, str, Any]] = []
        self.seen: dict[tuple[str, int], int] = {}
        self.lineages: dict[tuple[str, int], Any] = {}
        self.leaf = 0
        self.stores = [self.open(), self.open()]
        self.lines["a"] = Line()
        self.handle("a", 0).commit({"turn": 0}, step=1)
        self.entry("a", state={"turn": 0})
        self.seen["a", 0] = 1

    def open(self) -> cpstore.Store:
        return cpstore.open(self.folder / "s.db", signer=SIGNER, durability="normal")

    def teardown(self) -> None:
        if not hasattr(self, "stores"):
            return
        try:
            for name in self.lines:
                self.check(name, 0)
            report = self.stores[1].verify()
            assert report.good, report.findings
        finally:
            self.held.clear()
            for store in self.stores:
                store.close()
            shutil.rmtree(self.folder)

    # --- the model -------------------------------------------------------------------------------------------

    def handle(self, name: str, which: int, look: bool = False) -> Any:
        found = self.lineages.get((name, which))
        if found is None:
            found = self.lineages[name, which] = self.stores[which].lineage(name)
        if look:
            assert found.load() == self.lines[name].revisions[-1][0]
            self.seen[name, which] = len(self.lines[name].revisions)
        return found

    def entry(self, name: str, *, state: Any = None, watermark: int | None = None) -> None:
        line = self.lines[name]
        line.leaves.append(self.leaf)
        self.leaf += 1
        if state is not None:
            line.revisions.append((state, line.seq, line.seq if watermark is None else watermark))

    def event(self, name: str, identity: Any) -> None:
        self.entry(name)
        self.lines[name].events.append((self.lines[name].seq, identity))

    def identity(self, name: str, claim: dict[str, Any]) -> Any:
        owner = "a" if claim["scope"] == "family" else name
        own = claim["key"] or ("args", claim["args"])
        return claim["scope"], owner, claim["name"], own, claim["occurrence"]

    def children(self, name: str, since: int, upto: int) -> set[str]:
        found = {
            child
            for child, line in self.lines.items()
            if line.parent and line.parent[0] == name and since < line.leaves[0] <= upto
        }
        return found.union(*(self.children(child, -1, ALL) for child in found))

    def crossed(self, name: str) -> set[Any]:
        """Return the effects that a lineage has stepped back over."""
        line, upto, found = self.lines[name], ALL, set()
        while True:
            for seq, watermark in line.restores:
                if seq <= upto:
                    found |= line.spans(watermark, seq - 1)
                    for child in self.children(name, line.leaves[watermark - 1], line.leaves[seq - 1]):
                        found |= self.lines[child].spans(0, ALL)
            if line.parent is None:
                return found
            made, (name, upto, newest) = line.leaves[0], line.parent
            line = self.lines[name]
            (watermark,) = {mark for _, seq, mark in line.revisions if seq == upto}
            if newest != upto:
                found |= line.spans(watermark, newest)
                for child in self.children(name, line.leaves[upto - 1], made - 1):
                    found |= self.lines[child].spans(0, ALL)

    def verdict(self, name: str, revision: int, *, fork: bool) -> Verdict:
        line = self.lines[name]
        watermark = line.revisions[revision - 1][2]
        found = line.spans(watermark, ALL)
        for child in self.children(name, line.leaves[watermark - 1], ALL):
            found |= self.lines[child].spans(0, ALL)
        known = [self.effects[identity] for identity in found]
        if any(one.state is STARTED and one.kind > 1 for one in known):
            return Verdict.REFUSED
        unasked = [
            one
            for one in known
            if one.state.happened and (one.kind == 3 or (one.kind == 4 and (fork or one.lineage != name)))
        ]
        return Verdict.NEEDS_ACKNOWLEDGEMENT if unasked else Verdict.CLEARED

    def alive(self, identity: Any) -> bool:
        known = self.effects[identity]
        return not known.released and any(
            one == identity and handle.fresh and handle._attempt == known.attempt for one, _, handle in self.held
        )

    def answer(self, name: str, which: int, claim: dict[str, Any]) -> Any:
        """Return what begin says: an error's class, or the state "fresh" or "replay"."""
        seen = self.seen.get((name, which))
        if seen is None or seen < self.lines[name].epoch:
            return RevisionConflictError
        identity = self.identity(name, claim)
        known = self.effects.get(identity)
        if known is not None and known.claim["args"] != claim["args"]:
            return EffectConflictError
        fixed = [self.policies[claim["name"]]] if claim["name"] in self.policies else []
        fixed += [] if known is None else [known.policy]
        if fixed and claim["policy"] < max(fixed):
            return EffectConflictError
        if known is None:
            reworded = [
                one
                for one in map(self.effects.__getitem__, self.crossed(name))
                if one.claim["name"] == claim["name"]
                and one.claim["key"] is None
                and not one.policy.repeatable
                and one.claim["args"] != claim["args"]
                and one.claim["occurrence"] >= claim["occurrence"]
            ]
            asks = claim["key"] is None and claim["policy"] is not EffectPolicy.READ_ONLY
            return EffectConflictError if asks and reworded else "fresh"
        if known.state is CANCELLED:
            return EffectConflictError
        policy = max(known.policy, claim["policy"])
        if policy is EffectPolicy.READ_ONLY:
            return "fresh"
        if known.state is not STARTED:
            return "replay" if known.state.happened else "fresh"
        if self.alive(identity):
            return EffectBusyError
        return "fresh" if policy is EffectPolicy.IDEMPOTENT else EffectInDoubtError

    # --- the parts of a rule ---------------------------------------------------------------------------------

    def name(self, seed: int) -> str:
        return sorted(self.lines)[seed % len(self.lines)]

    def refused(self, error: Any, act: Any) -> None:
        with pytest.raises(error) as found:
            act()
        assert type(found.value) is error
        self.counted()

    def counted(self) -> None:
        assert self.stores[0].stats()["entries"] == self.leaf

    def check(self, name: str, which: int) -> None:
        lineage = self.stores[which].lineage(name)
        for revision, (state, seq, _) in enumerate(self.lines[name].revisions, 1):
            assert lineage.load(revision) == state and lineage.checkpoint(revision).seq == seq
        found = list(lineage.effects())
        assert [one.id for one in found] == [known.record.id for known in self.effects.values()]
        for record, known in zip(found, self.effects.values(), strict=True):
            assert (record.state, record.policy, record.attempt) == (known.state, known.policy, known.attempt)
            assert (record.evidence, record.recorded, record.who) == (known.evidence, known.recorded, known.who)
            if known.state is COMPLETED:
                assert lineage.outcome(record) == known.result
        doubtful = [
            known.record.id
            for identity, known in self.effects.items()
            if known.state is STARTED and not known.policy.repeatable and not self.alive(identity)
        ]
        assert [one.id for one in lineage.effects(in_doubt=True)] == doubtful

    def new(self, name: str, claim: dict[str, Any], **fields: Any) -> Known:
        identity = self.identity(name, claim)
        known = Known(claim, name if claim["scope"] == "lineage" else "a", claim["policy"], **fields)
        self.effects[identity] = known
        self.policies.setdefault(claim["name"], claim["policy"])
        return known

    # --- rules -----------------------------------------------------------------------------------------------

    @rule(seed=seeds, which=st.integers(0, 1), look=st.sampled_from([True, True, False]))
    def commit(self, seed: int, which: int, look: bool) -> None:
        name = self.name(seed)
        lineage, line = self.handle(name, which, look), self.lines[name]
        state = {"turn": seed}
        if self.seen.get((name, which)) != len(line.revisions):
            self.refused(RevisionConflictError, lambda: lineage.commit(state, step=1))
            return
        assert lineage.commit(state, step=1).revision == len(line.revisions) + 1
        self.entry(name, state=state)
        self.seen[name, which] = len(line.revisions)

    @rule(seed=seeds, which=st.integers(0, 1), claim=claims, look=st.sampled_from([True, True, True, False]))
    def begin(self, seed: int, which: int, claim: dict[str, Any], look: bool) -> None:
        self.begin_one(self.name(seed), which, claim, look=look)

    def begin_one(self, name: str, which: int, claim: dict[str, Any], *, look: bool) -> None:
        lineage = self.handle(name, which, look)
        answer = self.answer(name, which, claim)
        given = dict(claim)
        act = lambda: lineage.begin(given.pop("name"), given.pop("args"), **given)  # noqa: E731
        if not isinstance(answer, str):
            self.refused(answer, act)
            gc.collect()
            return
        handle, identity = act(), self.identity(name, claim)
        assert handle.fresh == (answer == "fresh")
        known = self.effects.get(identity)
        if handle.fresh:
            if known is None:
                known = self.new(name, claim, state=STARTED)
            known.policy = max(known.policy, claim["policy"])
            known.state, known.released, known.error, known.who, known.result = STARTED, False, "", "", None
            known.attempt += 1
            known.record = handle.record
            self.event(name, identity)
            self.held.append((identity, name, handle))
        elif known is not None and known.state is COMPLETED:
            assert handle.outcome == known.result
        self.counted()

    @precondition(lambda self: self.held)
    @rule(seed=seeds, result=st.sampled_from([1, 2]))
    def complete(self, seed: int, result: int) -> None:
        self.end_complete(seed % len(self.held), result)

    def end_complete(self, at: int, result: int) -> None:
        identity, name, handle = self.held[at]
        known = self.effects[identity]
        own = handle._attempt == known.attempt
        if own and known.state is STARTED:
            handle.complete(result)
            known.state, known.result = COMPLETED, result
        elif own and known.state in (COMPLETED, FAILED):
            if known.state is COMPLETED and known.result == result:
                handle.complete(result)
                return self.counted()
            return self.refused(EffectConflictError, lambda: handle.complete(result))
        else:
            handle.complete(result)
            known.evidence += 1
        self.event(name, identity)
        return self.counted()

    @precondition(lambda self: self.held)
    @rule(seed=seeds, happened=st.sampled_from([True, False, None, None]))
    def fail(self, seed: int, happened: bool | None) -> None:
        identity, name, handle = self.held[seed % len(self.held)]
        known = self.effects[identity]
        current = handle._attempt == known.attempt
        own = known.state in (COMPLETED, FAILED) or (known.state is HAPPENED and not known.who)
        if current and known.state is STARTED:
            handle.fail("error", happened=happened)
            if happened is None and known.released:
                return self.counted()
            known.state = {True: HAPPENED, False: FAILED, None: STARTED}[happened]
            known.released = True
        elif not current or not own:
            handle.fail("error", happened=happened)
            known.evidence += 1
        elif happened is None or happened is known.state.happened:
            handle.fail("error", happened=happened)
            return self.counted()
        else:
            return self.refused(EffectConflictError, lambda: handle.fail("error", happened=happened))
        self.event(name, identity)
        return self.counted()

    @rule(seed=seeds, which=st.integers(0, 1), args=st.sampled_from([1, 2]), forks=st.booleans())
    def what_agents_do_when_they_retry(self, seed: int, which: int, args: int, forks: bool) -> None:
        """Carry an effect out, go back to the first revision or fork from it, and ask in other words."""
        name = self.name(seed)
        claim = {"name": "pay", "key": None, "occurrence": 1, "scope": "family", "policy": EffectPolicy.AT_MOST_ONCE}
        before = len(self.held)
        self.begin_one(name, which, {**claim, "args": args}, look=True)
        if len(self.held) > before:
            self.end_complete(len(self.held) - 1, 1)
        unborn = [child for child in NAMES if child not in self.lines]
        if forks and unborn:
            self.go_fork(name, which, unborn[0], 9, answer=True)
            name = unborn[0] if unborn[0] in self.lines else name
        else:
            self.go_back(name, which, 9, look=True, answer=True)
        self.begin_one(name, which, {**claim, "args": 3 - args}, look=True)

    @precondition(lambda self: self.held)
    @rule(seed=seeds)
    def let_go(self, seed: int) -> None:
        del self.held[seed % len(self.held)]
        gc.collect()

    @precondition(lambda self: self.effects)
    @rule(seed=seeds, which=st.integers(0, 1), happened=st.booleans())
    def reconcile(self, seed: int, which: int, happened: bool) -> None:
        name, identity = self.name(seed), list(self.effects)[seed % len(self.effects)]
        lineage, known = self.handle(name, which), self.effects[identity]
        act = lambda: lineage.reconcile(known.record, happened=happened, **WORD)  # noqa: E731
        if known.state is not STARTED:
            same = known.state.happened is happened and known.state not in (CANCELLED, COMPENSATED)
            if same:
                assert act().state is known.state
                return self.counted()
            return self.refused(EffectConflictError, act)
        if self.alive(identity):
            return self.refused(EffectBusyError, act)
        act()
        known.state, known.who, known.released = (HAPPENED if happened else NOT_HAPPENED), "Ada", True
        self.event(name, identity)
        return self.counted()

    @precondition(lambda self: self.effects)
    @rule(seed=seeds, which=st.integers(0, 1))
    def compensate(self, seed: int, which: int) -> None:
        name, identity = self.name(seed), list(self.effects)[seed % len(self.effects)]
        lineage, known = self.handle(name, which), self.effects[identity]
        act = lambda: lineage.compensate(known.record.id, **WORD)  # noqa: E731
        if known.state is COMPENSATED:
            act()
            return self.counted()
        if not known.state.happened:
            return self.refused(EffectConflictError, act)
        act()
        known.state, known.who = COMPENSATED, "Ada"
        self.event(name, identity)
        return self.counted()

    @rule(seed=seeds, which=st.integers(0, 1), claim=claims)
    def cancel(self, seed: int, which: int, claim: dict[str, Any]) -> None:
        if seed % 3:
            return None
        name, given = self.name(seed), dict(claim)
        lineage, identity = self.handle(name, which), self.identity(name, claim)
        act = lambda: lineage.cancel(given.pop("name"), given.pop("args"), **given, **WORD)  # noqa: E731
        known = self.effects.get(identity)
        if known is not None:
            if known.claim["args"] != claim["args"] or known.state.happened or known.state is STARTED:
                return self.refused(EffectConflictError, act)
            if known.state is CANCELLED:
                act()
                return self.counted()
            act()
        else:
            record = act()
            known = self.new(name, claim, state=CANCELLED, record=record)
        known.state, known.who = CANCELLED, "Ada"
        self.event(name, identity)
        return self.counted()

    @rule(seed=seeds, which=st.integers(0, 1), claim=claims, result=st.sampled_from([1, 2]))
    def record(self, seed: int, which: int, claim: dict[str, Any], result: int) -> None:
        if seed % 3:
            return None
        name, given = self.name(seed), dict(claim)
        lineage, identity = self.handle(name, which), self.identity(name, claim)
        act = lambda: lineage.record(given.pop("name"), given.pop("args"), result, **given)  # noqa: E731
        known = self.effects.get(identity)
        if known is None:
            record = act()
            self.new(name, claim, state=COMPLETED, record=record, recorded=True, result=result)
            self.event(name, identity)
            return self.counted()
        same = known.recorded and known.state.happened and known.result == result
        if known.claim["args"] == claim["args"] and same:
            act()
            return self.counted()
        return self.refused(EffectConflictError, act)

    @rule(seed=seeds, which=st.integers(0, 1), back=st.integers(0, 5), look=st.sampled_from([True, True, False]),
          answer=st.booleans())  # fmt: skip
    def restore(self, seed: int, which: int, back: int, look: bool, answer: bool) -> None:
        self.go_back(self.name(seed), which, back, look=look, answer=answer)

    def go_back(self, name: str, which: int, back: int, *, look: bool, answer: bool) -> None:
        lineage, line = self.handle(name, which, look), self.lines[name]
        revision = max(1, len(line.revisions) - back)
        seen = self.seen.get((name, which))
        if seen is None or seen < line.epoch:
            self.refused(RevisionConflictError, lambda: lineage.restore(revision))
            return
        plan, verdict = lineage.plan_restore(revision), self.verdict(name, revision, fork=False)
        self.seen[name, which] = len(line.revisions)
        assert plan.verdict is verdict, plan
        word = Acknowledgement("Ada", "why", plan.effects) if answer else None
        if verdict is Verdict.REFUSED or (verdict is Verdict.NEEDS_ACKNOWLEDGEMENT and word is None):
            self.refused(UnsafeRollbackError, lambda: lineage.restore(revision, acknowledge=word))
            return
        state, _, watermark = line.revisions[revision - 1]
        assert plan.watermark == watermark
        assert lineage.restore(revision, acknowledge=word).revision == len(line.revisions) + 1
        if verdict is Verdict.NEEDS_ACKNOWLEDGEMENT:
            self.entry(name)
        self.entry(name, state=state, watermark=watermark)
        line.restores.append((line.seq, watermark))
        line.epoch = self.seen[name, which] = len(line.revisions)
        self.counted()

    @rule(
        seed=seeds, which=st.integers(0, 1), child=st.sampled_from(NAMES), back=st.integers(0, 3), answer=st.booleans()
    )
    def fork(self, seed: int, which: int, child: str, back: int, answer: bool) -> None:
        self.go_fork(self.name(seed), which, child, back, answer=answer)

    def go_fork(self, name: str, which: int, child: str, back: int, *, answer: bool) -> None:
        lineage, line = self.handle(name, which), self.lines[name]
        revision = max(1, len(line.revisions) - back)
        if child in self.lines:
            self.refused(ConflictError, lambda: lineage.fork(child, revision=revision))
            return
        verdict, word = Verdict.CLEARED, None
        if revision != len(line.revisions):
            verdict = self.verdict(name, revision, fork=True)
        act = lambda: lineage.fork(child, revision=revision, acknowledge=word)  # noqa: E731
        if verdict is not Verdict.CLEARED:
            with pytest.raises(UnsafeRollbackError) as refused:
                act()
            self.counted()
            if verdict is Verdict.REFUSED or not answer:
                return
            word = Acknowledgement("Ada", "why", refused.value.plan.effects)
        made = act()
        state, seq, _ = line.revisions[revision - 1]
        self.lines[child] = Line(parent=(name, seq, line.seq))
        self.entry(child, state=state)
        self.lineages[child, which], self.seen[child, which] = made, 1
        self.lineages.pop((child, 1 - which), None)
        self.counted()

    @rule(which=st.integers(0, 1))
    def reopen(self, which: int) -> None:
        mine = set(map(id, (self.lineages[key] for key in self.lineages if key[1] == which)))
        assert len(mine) == sum(key[1] == which for key in self.lineages)
        self.stores[which].close()
        self.stores[which] = self.open()
        # Handles of a closed store cannot say anything any more.
        journal = self.stores[1 - which]._journal
        self.held = [one for one in self.held if one[2]._ledger._line.journal is journal]
        self.lineages = {key: found for key, found in self.lineages.items() if key[1] != which}
        self.seen = {key: found for key, found in self.seen.items() if key[1] != which}
        gc.collect()

    @rule(seed=seeds, which=st.integers(0, 1))
    def everything_is_as_the_model_says(self, seed: int, which: int) -> None:
        self.check(self.name(seed), which)
        report = self.stores[which].verify()
        assert report.good, report.findings


TestEffects = Life.TestCase
TestEffects.settings = settings(
    settings.default, max_examples=max(25, settings.default.max_examples // 5), stateful_step_count=25
)
