"""A short agent run in a fresh store, with the refusals that the store is for; every error shown is a real one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cpstore.errors import CheckpointStoreError, ConflictError, RevisionConflictError, SemanticDriftError
from cpstore.model.binding import Authority, Binding, Directive, Supersession
from cpstore.model.glossary import Glossary
from cpstore.store import Store, open_store

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from cpstore.lineage import Lineage
    from cpstore.signing.keys import Signer

PATH = "cpstore-demo.db"
LINEAGE = "invoice-42"

MEANING = "request timeout of the gateway"
TIMEOUT = Binding("timeout", MEANING, constraint="unit: milliseconds", authority=Authority.USER)
TALK = (
    ("user", "Retry the failed invoices. The gateway timeout is 3000. That is milliseconds, please never change it."),
    ("assistant", "Understood: timeout 3000 ms. I start with invoice 42."),
    ("tool", "POST /invoices/42/retry -> 504 after 3000 ms"),
    ("assistant", "The gateway timed out once. I try again after a pause of 1500 ms."),
    ("tool", "POST /invoices/42/retry -> 200 after 812 ms"),
    ("assistant", "Invoice 42 is settled. 17 more are open."),
)
SUMMARY = "Summary so far: invoice 42 settled on the second try, 17 open; the timeout is 3000."


class DemoError(RuntimeError):
    """The store did not refuse what it promises to refuse."""


def run(path: str | os.PathLike[str], say: Callable[[str], None], signer: Signer | None = None) -> bool:
    """Play the demonstration in a new store at ``path``; ``say`` gets one line at a time.

    Returns whether the history verifies at the end. Raises ConflictError if ``path`` exists, and what opening a store
    raises.
    """
    if Path(path).exists():
        raise ConflictError(f"{path}: there is a file already, the demo makes its own; remove it or name another path")
    with open_store(path, signer=signer, actor="demo-agent") as store:
        say(f"A new store at {path}, origin {store.origin}.")
        task = _commits(store, say)
        _compaction(task, say)
        _stale(store, task, say)
        _fork(task, say)
    with open_store(path, create=False, signer=signer) as store:
        return _verify(store, path, say)


def _commits(store: Store, say: Callable[[str], None]) -> Lineage:
    say("")
    say("1. An agent works; each step is committed. The user has settled what 'timeout' means.")
    task = store.lineage(LINEAGE)
    messages: list[dict[str, str]] = []
    for step, (role, content) in enumerate(TALK, 1):
        messages.append({"role": role, "content": content})
        done = task.commit({"messages": messages}, step=step, define=[TIMEOUT] if step == 1 else ())
        say(f"   {LINEAGE}@{done.revision}  {role}: {content}")
    held = task.glossary().bindings[0]
    say(f"   locked: {held.symbol!r} is {held.definition}, {held.constraint}, by {held.authority.value}")
    return task


def _compaction(task: Lineage, say: Callable[[str], None]) -> None:
    say("")
    say("2. The context is full. A summary replaces the messages, and the glossary it declares has lost the unit.")
    head = task.head().revision
    state: dict[str, Any] = {"messages": [{"role": "system", "content": SUMMARY}]}
    _refused(SemanticDriftError, lambda: task.commit(state, step=7, glossary=Glossary(())), say)
    _unchanged(task, head, say)
    done = task.commit(state, step=7, glossary=task.glossary())
    say(f"   Carried over, it is accepted: {LINEAGE}@{done.revision}, and the unit is still known.")
    seconds = Binding("timeout", MEANING, constraint="unit: seconds", authority=Authority.USER)
    order = Directive(Authority.USER, "message 9", "from now on the timeout is given in seconds: 3")
    messages = [*state["messages"], {"role": "user", "content": order.text}]
    done = task.commit({"messages": messages}, step=8, supersede=[Supersession(seconds, order)])
    say(f"   Only the user may change it, and the order is signed with it: {LINEAGE}@{done.revision}.")
    back = Supersession(TIMEOUT, Directive(Authority.USER, "message 10", "no, back to milliseconds: 3000"))
    done = task.commit({"messages": messages}, step=9, supersede=[back])
    say(f"   The user thinks again: {LINEAGE}@{done.revision}, milliseconds.")


def _stale(store: Store, task: Lineage, say: Callable[[str], None]) -> None:
    say("")
    say("3. A second process took the same state and is slower. It commits against a head that has moved.")
    slow = store.lineage(LINEAGE)
    state = slow.load()
    task.commit(state | {"note": "from the fast one"}, step=10)
    head = task.head().revision
    _refused(RevisionConflictError, lambda: slow.commit(state | {"note": "from the slow one"}, step=10), say)
    _unchanged(task, head, say)


def _fork(task: Lineage, say: Callable[[str], None]) -> None:
    say("")
    say("4. A worker is forked. It shares the content and inherits the lock.")
    worker = task.fork(f"{LINEAGE}/worker-1")
    held = worker.glossary().bindings[0]
    say(f"   {worker.id}@1 knows: {held.symbol!r}, {held.constraint}. As an agent it decides on seconds:")
    seconds = Binding("timeout", MEANING, constraint="unit: seconds", authority=Authority.AGENT)
    order = Directive(Authority.AGENT, "own plan", "seconds are easier to read")
    state = worker.load()
    _refused(SemanticDriftError, lambda: worker.commit(state, step=11, supersede=[Supersession(seconds, order)]), say)
    _unchanged(worker, 1, say)


def _verify(store: Store, path: str | os.PathLike[str], say: Callable[[str], None]) -> bool:
    say("")
    say("5. Everything is recomputed from the bytes in the file: signatures, chains, log, states, locks.")
    report = store.verify()
    for finding in report.findings:
        say(f"   {finding.severity}: {finding.text}")
    verdict = "good" if report.good else "DAMAGED"
    say(f"   {report.entries} entries in {report.lineages} lineages: {verdict}; the log's root is {report.root[:16]}…")
    states = [store.lineage(record.id).load(at) for record in store.lineages() for at in _revisions(store, record.id)]
    full, sizes = sum(len(json.dumps(state)) for state in states), store.stats()
    kept = sizes["tail_bytes"] + sizes["segment_bytes"] + sizes["shared_bytes"]
    say(f"   The {len(states)} states written out take {full:,} bytes; what is kept of them takes {kept:,}.")
    say(f"   The file has {sizes['file_bytes']:,} with signatures, indexes and room to grow.")
    say("")
    say(f"Look inside:  python -m cpstore inspect {path}")
    return report.good


def _revisions(store: Store, lineage: str) -> list[int]:
    return [checkpoint.revision for checkpoint in store.lineage(lineage).history()]


def _refused(kind: type[CheckpointStoreError], act: Callable[[], object], say: Callable[[str], None]) -> None:
    try:
        act()
    except kind as error:
        for at, line in enumerate(str(error).splitlines()):
            say(f"   {'' if at else kind.__name__ + ': '}{line}")
        return
    raise DemoError(f"{kind.__name__} was expected")


def _unchanged(task: Lineage, head: int, say: Callable[[str], None]) -> None:
    now = task.head().revision
    if now != head:
        raise DemoError(f"{task.id} moved from revision {head} to {now}")
    say(f"   Nothing was written: {task.id} is still at revision {head}.")
