"""SQLite keeps the laws that every backend keeps."""

from __future__ import annotations

import pytest
from sqlite_cases import opened

from cpstore.testing import BackendContract


class TestSqlite(BackendContract):
    @pytest.fixture(params=["full", "normal"])
    def backend(self, request, tmp_path):
        backend = opened(tmp_path / "a.db", durability=request.param)
        yield backend
        backend.close()
