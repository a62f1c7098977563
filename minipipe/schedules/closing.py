"""All that can be wrong with what closes a mini-batch: the all-reduces `A` and the updates `U` of an order.

An order without any `A` is complete: the gradients of all copies are added up at its end. So is one without
any `U`: the optimizer makes its step after it. An order with some must have all, on each stage of each copy.
Copies that have a stage on the same device share it there, so it has one `A` and one `U` for all of them.
"""

from .playing import devices_with_copies
from .rules import CLOSING, RULES, WEIGHT


def wrong_closings(schedule):
    """The faults of the `A` and `U` of an order in which everything else is as it should be."""
    if not schedule.kinds & CLOSING:
        return []
    devices_of = devices_with_copies(schedule)
    checked = [_Device(schedule, device) for device in range(len(schedule.devices))]
    found = [fault for device in checked for fault in device.faults]
    if "U" in schedule.kinds and "A" not in schedule.kinds:
        found += [
            f"stage {stage} is on devices {_listed(devices)}, so an update needs the sum of their gradients: "
            "put an A before each U, as with_all_reduce does"
            for stage, devices in enumerate(devices_of) if len(devices) > 1
        ]
    return found or _unequal_numbers(checked, devices_of)


def _unequal_numbers(checked, devices_of):
    """Stages with more all-reduces on one device than on another, though each is a meeting of all."""
    found = []
    for stage, devices in enumerate(devices_of):
        numbers = [checked[device].n_sums.get(stage, 0) for device in devices]
        if len(set(numbers)) > 1:
            found.append(
                f"devices {_listed(devices)} have {_listed(numbers)} all-reduces of stage {stage}: each of "
                "them is a meeting of all, so put equally many on each"
            )
    return found


class _Device:
    """One device, action by action.

    gradients: stage -> the micro-batches whose gradients were made since its last update.
    summed: stage -> the `A` that has added them up.
    updated: stage -> its last `U`.
    n_sums: stage -> how many `A` it had.
    refused: the closing actions of which a fault says already that they come too early.
    faults: what is wrong, in words.
    """

    def __init__(self, schedule, device):
        self.who = f"device {device}"
        self.gradients, self.summed, self.updated, self.n_sums = {}, {}, {}, {}
        self.faults, self.refused = [], set()
        self.sums, self.versions = "A" in schedule.kinds, schedule.versions
        for part in schedule.parts(device):
            self._do(part)
        for stage, left in self.gradients.items():
            if "U" in schedule.kinds and self.updated.get(stage) not in self.refused:
                self._leaves_out("U", stage, left)
            if self.sums and stage not in self.summed:
                self._leaves_out("A", stage, left)

    def _do(self, part):
        kind, stage, i = part
        if kind in CLOSING:
            self._check_name(part)
        elif stage in self.updated and not self.versions:
            self._refuse(
                self.updated[stage],
                f"{part} comes after {self.updated[stage]}, so the order updates weights but does not say "
                "which ones it works with: pass versions, for each stage a row with the number of updates "
                "in the weights for each micro-batch, or put the update behind the stage's last backward",
            )
        if kind == "A":
            self.summed[stage] = part
            self.n_sums[stage] = self.n_sums.get(stage, 0) + 1
        elif kind == "U":
            if self.sums and stage not in self.summed:
                self.faults.append(
                    f"{self.who}: {part} applies gradients that no all-reduce has added up: put {stage}A{i} "
                    "before it"
                )
            self.gradients.pop(stage, None)
            self.summed.pop(stage, None)
            self.updated[stage] = part
        elif RULES[kind].adds & WEIGHT:
            if stage in self.summed:
                early = self.summed[stage]
                self._refuse(
                    early,
                    f"{early} comes before {part}, whose gradient it leaves out: put it behind the stage's "
                    "last backward",
                )
            self.gradients.setdefault(stage, []).append(i)

    def _refuse(self, closing, sentence):
        """Say once of a closing action what is wrong with it."""
        if closing not in self.refused:
            self.refused.add(closing)
            self.faults.append(f"{self.who}: {sentence}")

    def _check_name(self, part):
        """An `A` or `U` is named by the last of the micro-batches whose gradients it takes in."""
        kind, stage, i = part
        takes_in = {"A": "add up", "U": "apply"}[kind]
        gradients = self.gradients.get(stage, [])
        if i not in gradients:
            self.faults.append(
                f"{self.who}: {part} has nothing to {takes_in}: an update before it applied the gradient of "
                f"micro-batch {i}"
            )
        elif max(gradients) > i:
            self.faults.append(
                f"{self.who}: {part} comes after the backward of micro-batch {max(gradients)}, whose "
                f"gradient it would {takes_in}, too: put it before that, or write "
                f"{stage}{kind}{max(gradients)}"
            )

    def _leaves_out(self, kind, stage, gradients):
        microbatches = f"micro-batch{'es' * (len(gradients) > 1)} {_listed(sorted(gradients))}"
        self.faults.append(
            f"{self.who}: no {RULES[kind].name} of stage {stage} takes in {microbatches}: an order with some "
            f"{kind} has all of them, so put {stage}{kind}{max(gradients)} behind the stage's last backward"
        )


def _listed(numbers):
    return ", ".join(map(str, numbers))
