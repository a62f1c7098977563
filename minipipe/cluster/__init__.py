"""Simulated hardware: devices that run programs, links between them, a clock, memory, and the trace of a run."""

from .engine import Cluster
from .errors import DeadlockError, MemoryLimitError
from .memory import Buffers, bytes_by_kind
from .requests import Compute, Link, Receive, Send, links_between
from .trace import Idle, Message, Span, Trace

__all__ = [
    "Cluster", "Compute", "DeadlockError", "Idle", "Link", "MemoryLimitError", "Message", "Receive", "Send", "Span",
    "Trace", "bytes_by_kind", "links_between",
]
