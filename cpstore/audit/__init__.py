"""Verify: recompute everything from the stored bytes, and name what does not agree."""

from cpstore.audit.look import Audit
from cpstore.audit.report import Finding, Report

__all__ = ["Audit", "Finding", "Report"]
