"""Tasks, and the arrays that they read and write: what may run at once is found, not written by hand.

Where to read: `tasks` has graphs of tasks, and list scheduling: which task goes where and when. `recording`
makes a graph of calls of plain functions, and runs it. `training` has a mini-batch of a network as tasks.
"""

from .recording import Graph, Later
from .tasks import Listed, LowerBounds, Task, list_schedule
from .training import schedule_of, training_tasks

__all__ = [
    "Graph", "Later", "Listed", "LowerBounds", "Task", "list_schedule", "schedule_of", "training_tasks",
]
