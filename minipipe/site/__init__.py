"""The static site: the playground, schedules, public names and notebooks as pages.

A link to the playground says what it shows, as live/index.html#s=zb-h1&K=4&M=8 does.
If a value is not possible, the page says so, and takes the nearest size or the default:

    s        the schedule: a name, such as 1f1b (if left out), greedy or greedy-halves
    vs       a second schedule below it; none if left out
    K, M     devices, 1 to 32 (4), and micro-batches, 1 to 128 (8)
    F, I, W  ticks of a device's forward, input and weight gradient (1): 2, 0.1, 1/3,
             or one for each device, as in F=1,1,2,1; a whole backward takes I + W
    lat, tr  ticks for which a message travels (0), and for which it fills its link (0)
    alive    the most micro-batches that a device may keep; or one for each device
    D, T     replicas, 1 to 8 (1), and shards of each layer, 1 to 8 (1)
    zero     the level of ZeRO among the replicas, 0 to 3 (0)
    grad     ticks for which all gradients of a device fill a link (0)
    act      ticks for which what the shards sum in a forward fills a link (0)
    own      with s=own: an order, "." between actions and "~" between devices, as in
             s=own&own=F0.F1.B0.B1~F0.B0.F1.B1; it gives K and M
    theme    light or dark; if left out, as the system has it
"""

from .writing import write_site

__all__ = ["write_site"]
