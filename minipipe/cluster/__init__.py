"""Simulated hardware: devices that run programs, links between them, a clock, memory, and the trace of a run."""

from .engine import Cluster
from .errors import DeadlockError, MemoryLimitError
from .links import Link, Links
from .memory import Buffers, bytes_by_kind, own
from .requests import Compute, Receive, Send
from .trace import Idle, Message, Record, Span, Trace

__all__ = [
    "Buffers", "Cluster", "Compute", "DeadlockError", "Idle", "Link", "Links", "MemoryLimitError", "Message", "Receive", "Record", "Send", "Span",
    "Trace", "bytes_by_kind", "own",
]
