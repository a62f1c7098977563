"""What a way of training will take, in ticks and in bytes, and the search for the best one."""

from .dynamic_programs import Shared, meshed_stages, replicated_stages
from .fitting import Setting
from .fitting_part import what_fits
from .footprints import footprints, temporaries
from .in_shards import simulate_in_shards
from .measuring import Measured, measure
from .nodes import Nodes
from .one_microbatch import Footprint
from .plans import Plan, Plans
from .precision import PRECISIONS, Precision
from .profiles import Arranged, Profiled, arrange, profile_of, read_profile
from .rehearsal import rehearse
from .search import plan

__all__ = [
    "Arranged", "PRECISIONS", "Footprint", "Measured", "Nodes", "Plan", "Plans", "Precision", "Profiled",
    "Setting", "Shared", "arrange", "footprints", "measure", "meshed_stages", "plan", "profile_of",
    "read_profile", "rehearse", "replicated_stages", "simulate_in_shards", "temporaries", "what_fits",
]
