"""Every error says what to do, keeps its fields and survives pickling."""

from __future__ import annotations

import copy
import inspect
import pickle

import pytest

from cpstore import errors
from cpstore.errors import CheckpointStoreError

# One example of each error that takes more than a message. A new one of that kind must be added here.
EXAMPLES = {
    "SemanticDriftError": [
        errors.SemanticDriftError("invoice-42", [("timeout", "unit: ms", "unit: s"), ("gone", "x", "")]),
        errors.SemanticDriftError("invoice-42", (("timeout", "", "unit: s"),), "say it again"),
    ],
    "InvalidStateError": [
        errors.InvalidStateError("a set", "/messages/3", "use a list"),
        errors.InvalidStateError("a set"),
    ],
    "RevisionConflictError": [
        errors.RevisionConflictError("invoice-42", 3, 5),
        errors.RevisionConflictError("invoice-42", None, 5),
    ],
    "StaleWriteError": [
        errors.StaleWriteError("release-7", [("task-b", "revision 3 (9f86d081)", "revision 4 (2c26b46b)")]),
        errors.StaleWriteError("release-7", (("task-b", "nothing", "revision 4 (2c26b46b)"),), suspect=True),
    ],
    "PeerReadOnlyError": [
        errors.PeerReadOnlyError("release-7", "executor", "read_only", ["task-a", "task-b"], "after a compaction"),
        errors.PeerReadOnlyError("release-7", "executor", "suspect"),
    ],
    "UnsafeRollbackError": [
        errors.UnsafeRollbackError("invoice-42", 3, ["the refund is in doubt"], ["reconcile it"], ("plan", 1)),
    ],
    **{
        kind.__name__: [kind("refund #1 (key 17)", "somebody is at it", ("record", 1)), kind("refund", "no")]
        for kind in (
            errors.EffectConflictError,
            errors.EffectInDoubtError,
            errors.EffectBusyError,
            errors.OutcomePrunedError,
        )
    },
    "BusyError": [errors.BusyError("agent.db", 5.0), errors.BusyError("agent.db", 5.0, "process 17")],
    "StorageError": [
        errors.StorageError("disk full"),
        errors.StorageError("disk full", namespace="default", stream="invoice-42", seq=7, entry="ab" * 32),
    ],
}
KINDS = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, Exception) and kind.__module__ == errors.__name__
]


def takes_fields(kind: type) -> bool:
    return next(parent for parent in kind.__mro__ if "__init__" in vars(parent)).__module__ == errors.__name__


def examples() -> list[CheckpointStoreError]:
    found = [example for several in EXAMPLES.values() for example in several]
    return found + [kind(f"what happened in {kind.__name__}") for kind in KINDS if not takes_fields(kind)]


def name(error: object) -> str:
    return type(error).__name__ if isinstance(error, BaseException) else str(error)


def test_every_error_with_fields_has_an_example():
    assert {kind.__name__ for kind in KINDS if takes_fields(kind)} == set(EXAMPLES)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_error_derives_from_the_base_and_is_documented(kind):
    assert issubclass(kind, CheckpointStoreError)
    assert kind.__doc__
    assert kind.__name__.endswith("Error")
    assert kind.__name__ in (errors.__doc__ or "")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_error_says_what_helps(kind):
    assert kind.retry in {"never", "reload", "again"}


@pytest.mark.parametrize("error", examples(), ids=name)
@pytest.mark.parametrize("protocol", [0, 2, pickle.HIGHEST_PROTOCOL])
def test_every_error_pickles_with_its_fields(error, protocol):
    for again in (pickle.loads(pickle.dumps(error, protocol)), copy.copy(error)):
        assert type(again) is type(error)
        assert vars(again) == vars(error)
        assert again.args == error.args
        assert str(again) == str(error)


@pytest.mark.parametrize("error", examples(), ids=name)
def test_every_message_names_the_facts(error):
    said = str(error)

    assert said
    for value in vars(error).values():
        if isinstance(value, str) and value and value not in {"default", "ab" * 32, "lineage"}:
            assert value in said


def test_a_drift_lists_every_difference():
    said = str(EXAMPLES["SemanticDriftError"][0])

    assert "2 locked definition(s)" in said
    assert "'timeout': unit: ms -> unit: s" in said
    assert "'gone': x -> absent" in said


def test_a_conflict_names_the_head_and_what_to_do():
    assert "expected_revision=5" in str(errors.RevisionConflictError("a", None, 5))
    assert "revision 5, not 3" in str(errors.RevisionConflictError("a", 3, 5))


def test_a_missing_thing_is_also_a_lookup_error_with_a_plain_message():
    with pytest.raises(LookupError) as caught:
        raise errors.NotFoundError("no store at agent.db")
    assert str(caught.value) == "no store at agent.db"
    assert str(errors.NotFoundError()) == "not found"


@pytest.mark.parametrize(
    ("child", "parent"),
    [
        ("SemanticDriftError", "RefusedError"),
        ("CompactionConsistencyError", "RefusedError"),
        ("StaleWriteError", "CompactionConsistencyError"),
        ("PeerReadOnlyError", "CompactionConsistencyError"),
        ("UnsafeRollbackError", "RefusedError"),
        ("EffectConflictError", "RefusedError"),
        ("EffectInDoubtError", "RefusedError"),
        ("EffectBusyError", "RefusedError"),
        ("OutcomePrunedError", "RefusedError"),
        ("InvalidStateError", "RefusedError"),
        ("RevisionConflictError", "ConflictError"),
        ("UntrustedKeyError", "SignatureError"),
        ("BadSignatureError", "SignatureError"),
        ("SchemaTooNewError", "SchemaError"),
        ("SchemaChangedError", "SchemaError"),
    ],
)
def test_the_tree_is_the_documented_one(child, parent):
    assert getattr(errors, child).__base__ is getattr(errors, parent)
