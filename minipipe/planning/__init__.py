"""What a way of training will take, in ticks and in bytes, and the search for the best one.

Where to read: `one_microbatch` and `measuring` have the bytes and seconds of one micro-batch, `foresight` the
bytes of a run, `without_numbers` and `rehearsal` those of networks that are never built; `fitting`, `search`
and `profiles` look for the best, `pricing` has what each candidate takes.
"""

from .fitting import Setting, what_fits
from .footprints import footprints, temporaries
from .measuring import Measured, measure
from .one_microbatch import Footprint
from .pricing import Plan, Plans
from .profiles import (
    Arranged, Profiled, Shared, arrange, meshed_stages, partition_with_replicas, profile_of, read_profile,
)
from .rehearsal import rehearse, simulate_in_shards
from .search import Nodes, plan
from .without_numbers import PRECISIONS, Precision

__all__ = [
    "Arranged", "PRECISIONS", "Footprint", "Measured", "Nodes", "Plan", "Plans", "Precision", "Profiled",
    "Setting", "Shared", "arrange", "footprints", "measure", "meshed_stages", "partition_with_replicas",
    "plan", "profile_of", "read_profile", "rehearse", "simulate_in_shards", "temporaries", "what_fits",
]
