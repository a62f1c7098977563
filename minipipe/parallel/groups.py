"""Between which devices the layers of a stage talk to each other inside an action."""

from ..collectives import Group
from ..layers.exchange import join_group


def join_shards(stages, groups):
    """Hand each layer that communicates the group of the devices that share its stage.

    stages: {(stage, device): the `Stage`}.
    groups: lists of the devices that stand for one device of the schedule, in the order of the shards.
    """
    of_device = {}
    for number, devices in enumerate(groups):
        for rank, device in enumerate(devices):
            of_device[device] = Group(rank, devices, f"shards of device {number}: ")
    for (index, device), stage in stages.items():
        group = of_device[device]
        stage.group = Group(group.rank, group.devices, f"sums of stage {index}: ")
        join_group([*stage.layers, stage.loss] if stage.loss else stage.layers, group)


def join_copies(stages, ranks, D):
    """Hand each layer that is synchronised the group of the devices that do the same in the D copies.

    stages: {(stage, device): the `Stage`}.
    ranks: for each shard of the network its devices: the first copy has the first of them, and so on.
    """
    of_device = {}
    for devices in ranks:
        n = len(devices) // D
        for place, device in enumerate(devices):
            of_device[device] = place // n, [devices[place % n + copy * n] for copy in range(D)]
    for (index, device), stage in stages.items():
        group = Group(*of_device[device], f"layers of stage {index}: ")
        join_group([layer for layer in stage.layers if layer.over_copies], group)
