"""Simulated hardware: devices that run programs, links between them, a clock, memory, and the trace of a run."""

from .critical_path import Step, critical_path, describe_path
from .engine import Cluster
from .errors import DeadlockError, MemoryLimitError
from .explanation import Explanation, IdlePart, explain
from .links import Link, Links
from .memory import Buffers, bytes_by_kind, own
from .requests import Compute, Receive, Send
from .trace import Idle, Message, Record, Span, Trace

__all__ = [
    "Buffers", "Cluster", "Compute", "DeadlockError", "Explanation", "Idle", "IdlePart", "Link", "Links",
    "MemoryLimitError", "Message", "Receive", "Record", "Send", "Span", "Step", "Trace", "bytes_by_kind",
    "critical_path", "describe_path", "explain", "own",
]
