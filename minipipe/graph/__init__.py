"""Tasks, and the arrays that they read and write: what may run at once is found, not written by hand.

Where to read: `tasks` has graphs of tasks, list scheduling, which says which task goes
where and when, and a mini-batch of a network as tasks. `recording` makes a graph of
calls of plain functions, and runs it.
"""

from .recording import Graph, Later
from .tasks import Listed, LowerBounds, Task, list_schedule, schedule_of, training_tasks

__all__ = [
    "Graph", "Later", "Listed", "LowerBounds", "Task", "list_schedule", "schedule_of", "training_tasks",
]
