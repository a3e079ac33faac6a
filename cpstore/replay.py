"""Replay recorded agent trajectories into a store, then read every revision back and compare.

The format of the files is docs/trajectories.md.
"""

from __future__ import annotations

import json
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from cpstore.errors import CheckpointStoreError, InvalidStateError
from cpstore.snapshot import values
from cpstore.snapshot.frames import densest, read_frames

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from cpstore.lineage import Lineage
    from cpstore.store import Store

_ZSTD = b"\x28\xb5\x2f\xfd"
FLOOR_CHECKPOINT = 96
"""Bytes that the floor grants a checkpoint beside its content: a 64-byte signature and a 32-byte hash."""
MAX_WRONG = 100
"""Revisions that did not load equal, of which this many are named."""


@attrs.frozen
class Trajectory:
    """One recorded run: its messages, how many there are after each step, and where the live list was emptied."""

    id: str
    messages: list[Any]
    ends: list[int]
    cuts: frozenset[int]

    def steps(self) -> Iterator[Step]:
        """Yield the steps. ``Step.live`` is one list that grows: copy it to keep it."""
        live: list[Any] = []
        at = 0
        for number, end in enumerate(self.ends):
            emptied = False
            fresh: list[Any] = []
            for n in range(at, end):
                if n in self.cuts:
                    live, fresh, emptied = [], [], True
                live.append(self.messages[n])
                fresh.append(self.messages[n])
            at = end
            yield Step(number, live, fresh, emptied)


@attrs.frozen
class Step:
    """A step: the live messages after it, the last of which are fresh; ``emptied`` if the list was emptied before."""

    number: int
    live: list[Any]
    fresh: list[Any]
    emptied: bool

    def state(self) -> dict[str, Any]:
        """Return the state that the step commits."""
        return {"messages": self.live, "step": self.number}


@attrs.define
class Result:
    """What the replay of one file came to. Sizes are in bytes, times in seconds.

    ``full`` is what writing every state out as JSON would take, ``unique`` the JSON of each trajectory's distinct
    messages, ``disk`` what the store's file grew by, ``floor`` the yardstick (None if not asked for), ``wrong`` the
    revisions that did not load as they were committed.
    """

    file: str
    trajectories: int = 0
    checkpoints: int = 0
    full: int = 0
    unique: int = 0
    disk: int = 0
    floor: int | None = None
    commit_time: float = 0.0
    load_time: float = 0.0
    verified: int = 0
    wrong: list[str] = attrs.field(factory=list)

    @property
    def good(self) -> bool:
        """Whether every checkpoint loaded equal."""
        return not self.wrong and self.verified == self.checkpoints

    def to_value(self) -> dict[str, Any]:
        """Return the result in the JSON model."""
        return {
            "file": self.file,
            "trajectories": self.trajectories,
            "checkpoints": self.checkpoints,
            "full_bytes": self.full,
            "unique_bytes": self.unique,
            "disk_bytes": self.disk,
            "bytes_per_checkpoint": _ratio(self.disk, self.checkpoints),
            "full_to_disk": _ratio(self.full, self.disk),
            "floor_bytes": self.floor,
            "disk_to_floor": None if self.floor is None else _ratio(self.disk, self.floor),
            "commits_per_second": _ratio(self.checkpoints, self.commit_time),
            "loads_per_second": _ratio(self.verified + len(self.wrong), self.load_time),
            "verified": self.verified,
            "wrong": self.wrong[:MAX_WRONG],
            "good": self.good,
        }


@attrs.frozen
class Manner:
    """How to replay: by ``edit`` instead of whole states, ``abreast`` trajectories in turn, with the ``floor``."""

    namespace: str = "default"
    edit: bool = False
    abreast: int = 1
    floor: bool = False


def read_trajectories(path: str) -> Iterator[Trajectory]:
    """Yield the trajectories of a file, plain or zstd, one at a time.

    Raises InvalidStateError (naming file and line) for what is not the documented format, CorruptError for damaged
    zstd frames.
    """
    for number, line in enumerate(_lines(path), 1):
        if line.strip():
            yield _trajectory(line, f"{path}, line {number}")


def commit_all(
    trajectories: Iterable[Trajectory],
    store: Store,
    manner: Manner,
    result: Result,
    report: Callable[[int, int], None] | None = None,
) -> None:
    """Commit every step of some trajectories, each in a lineage of its id; ``manner.abreast`` of them take turns.

    Raises what ``Lineage.commit`` raises.
    """
    waiting = iter(trajectories)
    turn: deque[Iterator[None]] = deque()
    while True:
        while len(turn) < manner.abreast and (found := next(waiting, None)) is not None:
            result.trajectories += 1
            turn.append(_committing(found, store.lineage(found.id, namespace=manner.namespace), manner, result))
        if not turn:
            return
        current = turn.popleft()
        for _ in current:
            if report is not None and result.checkpoints % 16 == 0:
                report(result.checkpoints, 0)
            if manner.abreast > 1:
                turn.append(current)
                break


def compare_all(
    trajectories: Iterable[Trajectory],
    store: Store,
    manner: Manner,
    result: Result,
    report: Callable[[int, int], None] | None = None,
) -> None:
    """Load every revision of some trajectories and compare it with the state made anew from them."""
    for found in trajectories:
        lineage = store.lineage(found.id, namespace=manner.namespace)
        for step in found.steps():
            began = time.perf_counter()
            try:
                loaded: Any = lineage.load(step.number + 1)
                problem = ""
            except CheckpointStoreError as error:
                loaded, problem = None, f": {error}"
            result.load_time += time.perf_counter() - began
            if not problem and values.bytes_of(loaded) == values.bytes_of(step.state()):
                result.verified += 1
            else:
                result.wrong.append(f"{found.id}@{step.number + 1}{problem or ' is not what was committed'}")
            if report is not None and result.verified % 16 == 0:
                report(result.verified, result.checkpoints)


def _committing(found: Trajectory, lineage: Lineage, manner: Manner, result: Result) -> Iterator[None]:
    sizes = [len(_json(message)) for message in found.messages]
    seen: set[bytes] = set()
    unique = []
    for message in map(_json, found.messages):
        if message not in seen:
            seen.add(message)
            unique.append(message)
    result.unique += sum(map(len, unique))
    if manner.floor:
        result.floor = (result.floor or 0) + densest(b"\n".join(unique)) + FLOOR_CHECKPOINT * len(found.ends)
    live_size = 0
    for step in found.steps():
        began = time.perf_counter()
        _commit(lineage, step, edit=manner.edit)
        result.commit_time += time.perf_counter() - began
        end = found.ends[step.number]
        fresh = sum(sizes[end - len(step.fresh) : end])
        live_size = fresh if step.emptied else live_size + fresh
        commas = max(0, len(step.live) - 1)
        result.full += live_size + commas + len(_json({"messages": [], "step": step.number}))
        result.checkpoints += 1
        yield


def _commit(lineage: Lineage, step: Step, *, edit: bool) -> None:
    if not edit or step.number == 0:
        lineage.commit(step.state(), step=step.number)
        return
    with lineage.edit(step=step.number) as change:
        if step.emptied:
            change.set("/messages", step.live)
        elif step.fresh:
            change.append("/messages", *step.fresh)
        change.set("/step", step.number)


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


def _ratio(part: float, whole: float) -> float | None:
    return round(part / whole, 3) if whole else None


def _lines(path: str) -> Iterator[bytes]:
    file = Path(path)
    if not file.is_file():
        raise InvalidStateError(f"{path}: there is no such file, or it is not a regular one")
    try:
        with file.open("rb") as plain:
            packed = plain.read(len(_ZSTD)) == _ZSTD
            plain.seek(0)
            yield from read_frames(path) if packed else plain
    except OSError as error:
        raise InvalidStateError(f"{path}: cannot be read ({error.strerror})") from error


def _trajectory(line: bytes, where: str) -> Trajectory:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InvalidStateError(f"{where}: not JSON ({error})") from error
    if not isinstance(found, dict) or not isinstance(found.get("id"), str):
        raise InvalidStateError(f"{where}: a trajectory is an object with a text 'id'")
    messages, ends, acts = found.get("messages"), found.get("step_ends"), found.get("state_ops", [])
    if not isinstance(messages, list) or not isinstance(ends, list) or not isinstance(acts, list):
        raise InvalidStateError(f"{where}: 'messages', 'step_ends' and 'state_ops' are lists")
    before = 0
    for end in ends:
        if type(end) is not int or not before <= end <= len(messages):
            raise InvalidStateError(f"{where}: 'step_ends' rises up to {len(messages)}, the messages, not to {end!r}")
        before = end
    cuts = set()
    for act in acts:
        if not isinstance(act, dict) or act.get("op") != "compact" or type(act.get("at")) is not int:
            raise InvalidStateError(f"{where}: a state operation is {{'op': 'compact', 'at': N}}, not {act!r:.100}")
        cuts.add(act["at"])
    return Trajectory(found["id"], messages, ends, frozenset(cuts))
