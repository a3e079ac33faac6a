"""Planner, executor and verifier share a task ledger; the executor's context is compacted in the middle.

A simulation with seeds: the same script of acts is played with enforcement off (a plain dict, the last writer wins),
with the rules of ``cpstore``, and by agents that read everything they know again before each act. An **incident** is a
value that an agent wrote from a belief which was not the ledger's value at that moment. Agents are naive in every mode:
they trust their context, and learn that it is wrong only from what they read or from a refusal. A run is

- 12 tasks, put into the ledger by the planner;
- 72 acts. In each, an agent decides on one task from what it believes of it, and writes the outcome. Three acts in four
  begin with a look at the task, as when it is handed over; the others begin from the agent's context;
- after act 36, a summary takes the place of the executor's context. Of the 12 tasks it drops 3 and states 3 wrongly,
  whether or not the executor knew them and whether or not they had changed. Up to 4 of the others are copied whole and
  claimed as ``kept``; in a quarter of the runs one of the copies is wrong too. In half of the runs the executor still
  has the citations of what it had read, so that a wrong belief is cited rightly.

A **re-read** is a read of a task that the agent had read or written before. The bulk drives ``cpstore.rules`` alone; a
sample of the same runs drives a real store, and has to come out equal.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import attrs

import cpstore
from benchmarks.measure import Row, times
from benchmarks.stores import Ground
from cpstore.errors import CompactionConsistencyError, PeerReadOnlyError, StaleWriteError
from cpstore.ledger import Peer, SharedLedger
from cpstore.model.ledger import Held, Member, Seen, member_id
from cpstore.rules import compaction
from cpstore.rules import ledger as rules
from cpstore.streams.board import value_digest

AGENTS = ("planner", "executor", "verifier")
TASKS = tuple(f"task-{at:02}" for at in range(12))
ACTS = 72
HANDED = 0.75
DROPPED, WRONG, COPIED = 3, 3, 4
WRONG_COPY = 0.25
LEDGER = "release"
PUBLISHED = "published elsewhere, on another workload: 0 incidents at about +12 %"
LONG = [f"what was said at step {at} about the tasks, in more words than a summary has" for at in range(40)]

Value = dict[str, int]


# --- the workload -----------------------------------------------------------------------------------------------


@attrs.frozen
class Act:
    """An agent decides on a task; ``handed``: it looks at the task first. ``by`` tells its decision from others."""

    agent: str
    task: str
    handed: bool
    by: int


@attrs.frozen
class Script:
    """A run, the same in every mode. ``acts`` of the first half come before the compaction."""

    first: dict[str, Value]
    acts: tuple[Act, ...]
    dropped: frozenset[str]
    wrong: frozenset[str]
    copied: tuple[str, ...]
    wrong_copy: bool
    citations_kept: bool


def script(seed: int) -> Script:
    """Draw a run."""
    draw = random.Random(seed)
    tasks = draw.sample(TASKS, DROPPED + WRONG + COPIED)
    return Script(
        {task: {"n": draw.randrange(1_000_003)} for task in TASKS},
        tuple(
            Act(draw.choice(AGENTS), draw.choice(TASKS), draw.random() < HANDED, draw.randrange(1, 1_000_003))
            for _ in range(ACTS)
        ),
        frozenset(tasks[:DROPPED]),
        frozenset(tasks[DROPPED : DROPPED + WRONG]),
        tuple(sorted(tasks[DROPPED + WRONG :])),
        draw.random() < WRONG_COPY,
        draw.random() < 0.5,
    )


def decided(value: Value, by: int) -> Value:
    """Return what an agent makes of a value: another outcome for every other value."""
    return {"n": (value["n"] * 31 + by) % 1_000_003}


def bent(value: Value) -> Value:
    """Return a value as a wrong summary states it."""
    return {"n": (value["n"] + 1) % 1_000_003}


def oracle(script: Script) -> dict[str, Value]:
    """Return what the ledger holds in the end if every act is decided on what it held at that moment."""
    found = dict(script.first)
    for act in script.acts:
        found[act.task] = decided(found[act.task], act.by)
    return found


# --- the shared state -------------------------------------------------------------------------------------------


@attrs.frozen
class Look:
    """A value as an agent read it; ``seen`` is what a write of it has to cite."""

    value: Value
    seen: Any


class Shared(Protocol):
    """What the three agents share. ``write`` and ``revalidate`` may refuse."""

    def value(self, task: str) -> Value:
        """Return what is held now, for the count of incidents: no agent sees it."""
        ...

    def read(self, agent: str, task: str) -> Look: ...
    def write(self, agent: str, task: str, value: Value, seen: Any) -> Look: ...
    def revalidate(self, agent: str, looks: Sequence[Look]) -> None: ...
    def compact(self, copies: dict[str, Value]) -> None: ...


class Plain:
    """Enforcement off: a dict."""

    def __init__(self, first: dict[str, Value]) -> None:
        self._values = dict(first)

    def value(self, task: str) -> Value:
        return self._values[task]

    def read(self, agent: str, task: str) -> Look:
        return Look(self._values[task], None)

    def write(self, agent: str, task: str, value: Value, seen: Any) -> Look:
        self._values[task] = value
        return Look(value, None)

    def revalidate(self, agent: str, looks: Sequence[Look]) -> None:
        raise AssertionError("a dict refuses nothing")

    def compact(self, copies: dict[str, Value]) -> None:
        """A dict is not told."""


class Ruled:
    """The rules of the package alone. ``compactions_count=False`` leaves out what they say about compaction."""

    def __init__(self, first: dict[str, Value], *, compactions_count: bool = True) -> None:
        self._values: dict[str, Value] = {}
        self._held: dict[str, Held] = {}
        self._seq = 0
        self._members = {name: Member(member_id(name, _lineage(name)), name, _lineage(name)) for name in AGENTS}
        self._compactions_count = compactions_count
        for task, value in first.items():
            self.write("planner", task, value, cpstore.ABSENT)

    def value(self, task: str) -> Value:
        return self._values[task]

    def read(self, agent: str, task: str) -> Look:
        held = self._held[task]
        seen = Seen(LEDGER, task, held.revision, held.digest, self._seq)
        after = rules.read(self._members[agent], [task])
        if after is not None:
            self._put(agent, after)
        return Look(self._values[task], seen)

    def write(self, agent: str, task: str, value: Value, seen: Any) -> Look:
        member, digest = self._members[agent], value_digest(value)
        put = [rules.Put(task, seen, digest)]
        try:
            revisions, after = rules.write(LEDGER, member, put, self._held, self._members.values())
        except StaleWriteError as error:
            if error.suspect:
                self._put(agent, rules.suspected(member, self._seq, "uncited write"))
            raise
        self._put(agent, after)
        self._held[task] = Held(revisions[task], digest, self._seq)
        self._values[task] = value
        return Look(value, Seen(LEDGER, task, revisions[task], digest, self._seq))

    def revalidate(self, agent: str, looks: Sequence[Look]) -> None:
        member = self._members[agent]
        self._put(agent, rules.revalidate(LEDGER, member, [look.seen for look in looks], self._held))

    def compact(self, copies: dict[str, Value]) -> None:
        if not self._compactions_count:
            return
        member, digests = self._members["executor"], {_path(task): value_digest(copies[task]) for task in copies}
        kept = compaction.check_kept(
            {task: _path(task) for task in copies}, {LEDGER: member}, lambda _, task: self._held.get(task), digests.get
        )
        self._put("executor", rules.demote(member, self._seq, "compaction", kept.get(LEDGER, {})))

    def _put(self, agent: str, member: Member) -> None:
        self._seq += 1
        self._members[agent] = member


class Stored:
    """A real store: a ledger of it, two peers without a lineage, and the executor with one."""

    def __init__(self, store: cpstore.Store, namespace: str, first: dict[str, Value]) -> None:
        self._ledger: SharedLedger = store.ledger(LEDGER, namespace=namespace)
        self._lineage = store.lineage("executor", namespace=namespace)
        self._lineage.commit({"messages": LONG, "copies": {}}, step=1)
        self._peers: dict[str, Peer] = {
            name: self._ledger.join(name, lineage=self._lineage if _lineage(name) else None) for name in AGENTS
        }
        for task, value in first.items():
            self.write("planner", task, value, cpstore.ABSENT)

    def value(self, task: str) -> Value:
        found: Value = self._ledger.read(task).value
        return found

    def read(self, agent: str, task: str) -> Look:
        found = self._peers[agent].read(task)
        return Look(found.value, found)

    def write(self, agent: str, task: str, value: Value, seen: Any) -> Look:
        return Look(value, self._peers[agent].write(task, value, seen=seen))

    def revalidate(self, agent: str, looks: Sequence[Look]) -> None:
        self._peers[agent].revalidate([look.seen for look in looks])

    def compact(self, copies: dict[str, Value]) -> None:
        state = {"messages": ["a summary of everything that was said"], "copies": copies}
        self._lineage.compact(state, summary="/messages/0", kept={task: _path(task) for task in copies})


def _lineage(agent: str) -> str | None:
    return agent if agent == "executor" else None


def _path(task: str) -> str:
    return f"/copies/{task}"


# --- a run ------------------------------------------------------------------------------------------------------


@attrs.define
class Tally:
    """What came of runs: counts, by name; ``right`` counts runs whose last values are the oracle's."""

    acts: int = 0
    incidents: int = 0
    reads: int = 0
    rereads: int = 0
    refused: int = 0
    copies_refused: int = 0
    right: int = 0

    def add(self, other: Tally) -> None:
        """Count another run's counts in."""
        for field in attrs.fields(Tally):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))


class Run:
    """One script, played on one shared state."""

    def __init__(self, script: Script, shared: Shared, *, everything: bool = False) -> None:
        self.tally = Tally()
        self._script = script
        self._shared = shared
        self._everything = everything
        self._beliefs: dict[str, dict[str, Look]] = {agent: {} for agent in AGENTS}
        self._known: dict[str, set[str]] = {agent: set() for agent in AGENTS}

    def play(self) -> Tally:
        """Play the script and return what came of it."""
        self._known["planner"].update(TASKS)
        for at, act in enumerate(self._script.acts):
            if at == ACTS // 2:
                self._compact()
            self._act(act)
        held = {task: self._shared.value(task) for task in TASKS}
        self.tally.right = held == oracle(self._script)
        return self.tally

    def _act(self, act: Act) -> None:
        beliefs = self._beliefs[act.agent]
        if self._everything:
            for task in sorted(self._known[act.agent] | {act.task}):
                self._read(act.agent, task)
        elif act.handed or act.task not in beliefs:
            self._read(act.agent, act.task)
        self.tally.acts += 1
        while True:
            belief = beliefs[act.task]
            wrong = belief.value != self._shared.value(act.task)
            try:
                beliefs[act.task] = self._shared.write(act.agent, act.task, decided(belief.value, act.by), belief.seen)
            except PeerReadOnlyError as error:
                looks = [self._read(act.agent, task) for task in error.keys]
                self._shared.revalidate(act.agent, looks)
            except StaleWriteError:
                self._read(act.agent, act.task)
            else:
                self._known[act.agent].add(act.task)
                self.tally.incidents += wrong
                return
            self.tally.refused += 1

    def _read(self, agent: str, task: str) -> Look:
        look = self._beliefs[agent][task] = self._shared.read(agent, task)
        self.tally.reads += 1
        self.tally.rereads += task in self._known[agent]
        self._known[agent].add(task)
        return look

    def _compact(self) -> None:
        """Put a summary in the place of the executor's context, and say so."""
        script, before = self._script, self._beliefs["executor"]
        copies = {task: before[task].value for task in script.copied if task in before}
        if script.wrong_copy and copies:
            task = min(copies)
            copies[task] = bent(copies[task])
        after = {
            task: Look(look.value, look.seen if script.citations_kept else None)
            for task, look in before.items()
            if task not in script.dropped
        }
        for task in script.wrong:  # also of those that it never looked at: a summary may invent
            look = after.get(task)
            after[task] = Look(bent(script.first[task]), None) if look is None else Look(bent(look.value), look.seen)
        for task, value in copies.items():
            after[task] = Look(value, after[task].seen)
        self._beliefs["executor"] = after
        try:
            self._shared.compact(copies)
        except CompactionConsistencyError:
            self.tally.copies_refused += 1
            self._shared.compact({})


MODES: dict[str, Callable[[Script], Run]] = {
    "off": lambda script: Run(script, Plain(script.first)),
    "citations alone": lambda script: Run(script, Ruled(script.first, compactions_count=False)),
    "on": lambda script: Run(script, Ruled(script.first)),
    "everything": lambda script: Run(script, Plain(script.first), everything=True),
}


def simulate(seeds: Iterable[int]) -> dict[str, Tally]:
    """Play the runs of all seeds in every mode and return what came of them, by mode."""
    tallies = {mode: Tally() for mode in MODES}
    for seed in seeds:
        one = script(seed)
        for mode, make in MODES.items():
            tallies[mode].add(make(one).play())
    return tallies


def unequal(store: cpstore.Store, seeds: Iterable[int]) -> list[int]:
    """Play runs on a real store and return the seeds of those that did not come out as by the rules alone."""
    found = []
    for seed in seeds:
        one = script(seed)
        if Run(one, Stored(store, f"run-{seed}", one.first)).play() != MODES["on"](one).play():
            found.append(seed)
    return found


# --- the table --------------------------------------------------------------------------------------------------


def incidents(ground: Ground, runs: int, sample: int) -> list[Row]:
    """Play ``runs`` scripts in every mode, and the first ``sample`` of them on a real store."""
    found = simulate(range(runs))
    with ground.store("divergence.db", durability="normal") as store:
        odd = unequal(store, range(sample))
    off, cited, on, every = (found[mode] for mode in ("off", "citations alone", "on", "everything"))
    figures = {mode: attrs.asdict(tally) for mode, tally in found.items()} | {"runs": runs}
    several = f"{runs:,} runs of planner, executor and verifier"
    good = on.incidents == 0 < off.incidents and on.right == runs and every.incidents == 0
    return [
        Row(
            f"divergence incidents, {several}",
            f"{on.incidents} of {on.acts:,} acts",
            f"enforcement off: {_share(off)}",
            bar="0",
            good=good,
            figures=figures,
        ),
        Row(
            "the same, cited writes without the rules of compaction",
            _share(cited),
            f"enforcement off: {_share(off)}",
        ),
        Row(
            "runs that end with the values that every act was meant to give",
            f"{on.right:,} of {runs:,}",
            f"enforcement off: {off.right:,}",
            bar="all",
            good=on.right == runs,
        ),
        Row(
            "re-reads, beside reading everything again before each act",
            f"{on.rereads:,}",
            f"{every.rereads:,}",
            times(on.rereads / every.rereads),
            "≤ 1/3",
            3 * on.rereads <= every.rereads,
        ),
        Row(
            f"re-reads, beside enforcement off ({PUBLISHED})",
            f"{on.rereads:,}",
            f"enforcement off: {off.rereads:,}",
            f"{100 * (on.rereads / off.rereads - 1):+.0f} %",
        ),
        Row(
            "the same runs on a real store that come out equal",
            f"{sample - len(odd)} of {sample}",
            bar="all",
            good=not odd,
            figures={"unequal": odd},
        ),
    ]


def _share(tally: Tally) -> str:
    return f"{tally.incidents:,} of {tally.acts:,} acts ({100 * tally.incidents / tally.acts:.1f} %)"
