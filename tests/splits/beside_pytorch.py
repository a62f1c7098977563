"""The same training in PyTorch: DDP, FSDP2 and DTensor on two processes, next to replicas, ZeRO and shards.

    python3 tests/splits/beside_pytorch.py

Needs torch 2.6 or later, which nothing else here does. Prints for each pair the largest difference of a
parameter after three updates by Adam, as a share of the largest parameter; ends with 1 if one exceeds 1e-12.
All is in float64: what is left are sums that are added up in another order.
"""

import logging
import os
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp_torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(Path(__file__).parents[2]))

import minipipe as mp

BOUND = 1e-12
N, SIZES, SAMPLES, RATE = 2, (6, 8, 8, 4), 8, 0.01
rng = np.random.default_rng(0)
BATCHES = [(rng.standard_normal((SIZES[0], SAMPLES)), rng.standard_normal((SIZES[-1], SAMPLES)))
           for _ in range(3)]


def layers():
    """Return the layers of the network, which has the same weights each time."""
    pairs = [(mp.Linear(n_prev, n), mp.Tanh()) for n_prev, n in zip(SIZES, SIZES[1:], strict=False)]
    return mp.Sequential([layer for pair in pairs for layer in pair][:-1], None, seed=1).layers


OURS = {
    "DDP": lambda: mp.DataParallel(layers(), mp.MeanSquaredError(), N),
    "FSDP2": lambda: mp.DataParallel(layers(), mp.MeanSquaredError(), N, zero=3),
    "DTensor": lambda: mp.TensorParallel(layers(), mp.MeanSquaredError(), N),
    "FSDP2 x DTensor": lambda: mp.Parallel(
        layers(), mp.MeanSquaredError(), replicas=N, shards=N, zero=3),
}


def ours(name):
    """Return the parameters of a network of OURS after all updates."""
    net = OURS[name]()
    net.train(BATCHES, mp.Adam(RATE))
    return [array for layer in net.layers if layer.W is not None for array in (layer.W, layer.b[:, 0])]


def theirs(name):
    """Return the same of PyTorch, from processes of its own."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "parameters.npz")
        n = N * N if "x" in name else N
        mp_torch.spawn(train, (n, name, path, f"file://{folder}/meeting"), nprocs=n)
        with np.load(path) as found:
            return [found[key] for key in found.files]


def train(rank, n, name, path, meeting):
    """What one process does."""
    warnings.simplefilter("ignore")  # of views, and of gathers in another order than PyTorch would like best
    logging.getLogger("torch").setLevel(logging.ERROR)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=n)
    torch.set_default_dtype(torch.float64)
    model = module()
    if "x" in name:
        mesh = init_device_mesh("cpu", (N, N), mesh_dim_names=("dp", "tp"))
        model = sharded(parallelize_module(model, mesh["tp"], plan()), mesh["dp"])
    elif name == "DTensor":
        model = parallelize_module(model, init_device_mesh("cpu", (N,)), plan())
    elif name == "FSDP2":
        model = sharded(model, init_device_mesh("cpu", (N,)))
    else:
        model = DistributedDataParallel(model)
    n_copies, copy = (1, 0) if name == "DTensor" else (N, rank // (n // N))
    own = slice(copy * SAMPLES // n_copies, (copy + 1) * SAMPLES // n_copies)
    optimizer = torch.optim.Adam(model.parameters(), RATE)
    for X, Y in BATCHES:
        X, Y = (torch.from_numpy(np.ascontiguousarray(array[:, own].T)) for array in (X, Y))
        optimizer.zero_grad()
        # the cost of a mini-batch is the mean over copies, so each takes the mean over its own samples
        (((model(X) - Y) ** 2).sum() / (2 * X.shape[0])).backward()
        optimizer.step()
    found = [p.full_tensor() if isinstance(p, DTensor) else p for p in model.parameters()]
    if rank == 0:
        np.savez(path, *[p.detach().numpy() for p in found])
    dist.barrier()


def module():
    """Return the network as a `torch.nn.Sequential`."""
    found = []
    for layer in layers():
        if layer.W is None:
            found.append(torch.nn.Tanh())
            continue
        linear = torch.nn.Linear(layer.n_prev, layer.n)
        with torch.no_grad():
            linear.weight.copy_(torch.from_numpy(layer.W))
            linear.bias.copy_(torch.from_numpy(layer.b[:, 0]))
        found.append(linear)
    return torch.nn.Sequential(*found)


def plan():
    """Return how its linear layers are split: a pair by outputs and by inputs, and one by outputs."""
    return {"0": ColwiseParallel(), "2": RowwiseParallel(),
            "4": ColwiseParallel(output_layouts=torch.distributed.tensor.Replicate())}


def sharded(model, mesh):
    """Return the model with each linear layer as a unit of FSDP2."""
    for layer in model:
        if isinstance(layer, torch.nn.Linear):
            fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def difference(name):
    """Return the largest difference of a parameter, as a share of the largest parameter."""
    pairs = list(zip(ours(name), theirs(name), strict=True))
    largest = max(np.abs(b).max() for _, b in pairs)
    return max(np.abs(a - b).max() for a, b in pairs) / largest


def main():
    found = {name: difference(name) for name in OURS}
    for name, share in found.items():
        print(f"{name:16} {share:.1e}")
    return int(max(found.values()) > BOUND)


if __name__ == "__main__":
    sys.exit(main())
