"""Graphs of tasks: which of them may run at once, by the arrays that they touch.

Where to read: `tasks` has task graphs, list scheduling, which chooses the device and
the start of each task, and a mini-batch of a network as tasks. `recording` makes a
graph of calls of plain functions, and runs it.
"""

from .recording import Graph, Later
from .tasks import Listed, Task, list_schedule, schedule_of, training_tasks

__all__ = ["Graph", "Later", "Listed", "Task", "list_schedule", "schedule_of", "training_tasks"]
