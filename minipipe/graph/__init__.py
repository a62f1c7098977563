"""Tasks, and the arrays that they read and write: what may run at once is found, not written by hand.

Where to read: `tasks` has graphs of tasks, and list scheduling: which task goes where and when. `recording`
makes a graph of calls of plain functions, and runs it. `training` has a mini-batch of a network as tasks,
`asynchronous` calls that begin at once, in the background.
"""

from .asynchronous import Asynchronous
from .recording import Accesses, Graph, Later
from .tasks import (
    Listed, LowerBounds, Task, TaskGraph, earliest_finish, from_names, list_schedule, programs_of, run_listed,
)
from .training import schedule_of, training_tasks

__all__ = [
    "Accesses", "Asynchronous", "Graph", "Later", "Listed", "LowerBounds", "Task", "TaskGraph",
    "earliest_finish", "from_names", "list_schedule", "programs_of", "run_listed", "schedule_of",
    "training_tasks",
]
