"""Simulated hardware: devices, links, a clock, memory, and the trace of a run.

Where to read: `requests` is what a program can ask for. `clock` runs programs, and
`mail` carries their messages. `trace` is what has happened, and `why` says why it took
so long.
"""

from .clock import Cluster
from .exchanges import Exchange
from .links import Link, Port, checked_ports, links_between, ports
from .mail import DeadlockError, UnreceivedError
from .memory import Bytes, Counted, MemoryLimitError, bytes_by_kind, copy_for_receiver, sent_bytes
from .record import COMPUTE, SECONDS, TICKS, Idle, Message, OneTick, Span, duration, lane_name, ticks
from .requests import ANY, Compute, Label, Receive, Send
from .trace import BUBBLES, SHOWS, Trace
from .why import Explanation, IdlePart, Step, critical_path, describe_path, explain

__all__ = [
    "ANY", "BUBBLES", "Bytes", "COMPUTE", "Cluster", "Compute", "Counted", "DeadlockError", "Exchange",
    "Explanation", "Idle", "IdlePart", "Label", "Link", "MemoryLimitError", "Message", "OneTick", "Port",
    "Receive", "SECONDS", "SHOWS", "Send", "Span", "Step", "TICKS", "Trace", "UnreceivedError",
    "bytes_by_kind", "checked_ports", "copy_for_receiver", "critical_path", "describe_path", "duration",
    "explain", "lane_name", "links_between", "ports", "sent_bytes", "ticks",
]
