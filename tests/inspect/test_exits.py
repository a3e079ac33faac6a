from __future__ import annotations

import pytest

from cpstore import errors
from cpstore.inspect.exits import Phase, Stopped, during, exit_code

BUSY = errors.BusyError("agent.db", 1.0)
CONFLICT = errors.RevisionConflictError("task", 1, 2)
DRIFT = errors.SemanticDriftError("task@2", [("timeout", "ms", "s")])

CODES = [
    (errors.NotFoundError("key"), Phase.KEY, 12),
    (errors.UntrustedKeyError("others may read it"), Phase.KEY, 12),
    (errors.CorruptError("no PEM"), Phase.KEY, 12),
    (errors.ConflictError("there is one"), Phase.KEY, 12),
    (errors.NotFoundError("no store"), Phase.OPEN, 10),
    (errors.CorruptError("not a database"), Phase.OPEN, 5),
    (errors.InvalidStateError("a directory"), Phase.OPEN, 5),
    (errors.SchemaTooNewError("newer"), Phase.OPEN, 5),
    (errors.SchemaChangedError("other"), Phase.OPEN, 5),
    (errors.StorageError("disk"), Phase.OPEN, 5),
    (errors.UntrustedKeyError("whose?"), Phase.OPEN, 3),
    (errors.BadSignatureError("changed"), Phase.OPEN, 3),
    (BUSY, Phase.OPEN, 11),
    (errors.NotFoundError("no file"), Phase.INPUT, 5),
    (errors.InvalidStateError("no trajectory"), Phase.INPUT, 5),
    (errors.CorruptError("zstd"), Phase.INPUT, 5),
    (errors.CorruptError("bytes"), Phase.ACT, 1),
    (errors.BadSignatureError("changed"), Phase.ACT, 3),
    (errors.UntrustedKeyError("whose?"), Phase.ACT, 3),
    (errors.NotFoundError("no lineage"), Phase.ACT, 2),
    (CONFLICT, Phase.ACT, 2),
    (DRIFT, Phase.ACT, 2),
    (BUSY, Phase.ACT, 11),
]


@pytest.mark.parametrize(
    ("error", "phase", "code"), CODES, ids=lambda value: getattr(value, "name", None) or repr(value)[:30]
)
def test_an_error_and_where_it_came_up_decide_the_exit_code(error, phase, code):
    assert exit_code(error, phase) == code


@pytest.mark.parametrize("phase", Phase)
def test_every_error_of_the_package_has_a_code_in_every_phase(phase):
    kinds = [errors.CheckpointStoreError]
    for kind in kinds:
        kinds += kind.__subclasses__()
        assert 0 < exit_code(kind.__new__(kind), phase) < 128


def test_an_error_ends_the_command_with_the_code_of_its_phase():
    with pytest.raises(Stopped) as stopped, during(Phase.OPEN):
        raise errors.NotFoundError("no store")

    assert stopped.value.code == 10
    assert isinstance(stopped.value.error, errors.NotFoundError)
