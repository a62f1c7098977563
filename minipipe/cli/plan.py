"""The command `plan`: the best way to train a Transformer on a cluster, by formulas."""

import re
from argparse import Namespace
from dataclasses import replace

from ..checks import shown
from ..planning import GPUS, MODELS, Nodes, Software, Transformer, confirm, plan
from ..planning.hardware import LINKS, OTHER_LINKS


def print_plan(options: Namespace) -> None:
    """Print the best way for `options`; run it on the engine and draw it, if asked."""
    software = Software(flash=not options.no_flash, launch=options.launch)
    found = plan(model_of(options), nodes_of(options), options.batch, software=software)
    print(found)
    if options.confirm:
        print(f"\n{confirm(found.best)}")
    if options.output:
        found.save(options.output)


def model_of(options: Namespace) -> Transformer:
    """Return the `Transformer` of `options`: named by --model, or in --config."""
    if options.config:
        return Transformer.from_config(options.config, options.seq)
    if options.model not in MODELS:
        raise ValueError(
            f"--model {shown(options.model)} is not one of {', '.join(MODELS)}: type one, or --config FILE"
        )
    model = MODELS[options.model]
    return model if options.seq is None else replace(model, seq=options.seq)


def nodes_of(options: Namespace) -> Nodes:
    """Return the `Nodes` of `options`: --gpus 2x4xh100, with the links of that GPU."""
    found = re.fullmatch(r"(\d{1,9})x(\d{1,9})x(.+)", options.gpus.lower())
    if not found:
        raise ValueError(
            f"--gpus {shown(options.gpus)} is not a cluster: type nodes x GPUs of a node x the GPU, "
            "such as 2x4xh100"
        )
    nodes, gpus, name = found.groups()
    if name not in GPUS:
        raise ValueError(f"--gpus {shown(options.gpus)}: {name!r} is not one of {', '.join(GPUS)}")
    nvlink, nic = LINKS.get(name, OTHER_LINKS)
    nic = nic if options.nic is None else options.nic
    return Nodes(int(nodes), int(gpus), GPUS[name], nvlink, nic)
