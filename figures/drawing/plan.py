"""The picture of a plan: 7 billion parameters, eight GPUs, 100-gigabit Ethernet."""

from minipipe import planning


def plan():
    """Return a `Figure` of seconds and memory, of the best and other ways."""
    cluster = planning.Nodes(8, 1, planning.GPUS["h100"], nvlink=450e9, nic=12.5e9)
    return planning.plan(planning.MODELS["llama-7b"], cluster, batch=64).plot()
