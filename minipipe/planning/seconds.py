"""The seconds of a step: the parts of a layer, a pipeline, exchanges of replicas."""

from typing import Any

from ..schedules import SCHEDULES
from .hardware import half_ring, product
from .transformer import Choice, Way, along, layers_of_stages, on_devices, parameters_of_stages

Times = dict[str, tuple[float, float, float]]  # {part of a layer: seconds of (F, I, W)}

KERNELS = 22, 60  # launches of a layer, forward and backward
STORED = 13  # bytes that a forward moves for each score, if scores are stored: fused kernels, with dropout
LOGITS = 22  # bytes that the loss moves for each logit, forward and backward; inferred from published runs


def attention(way: Way) -> tuple[float, float]:
    """Return the seconds of attention in a layer of `way`, (forward, backward).

    Fused: 4 scores s^2 b h / T operations forward, 2.5 times as many backward, at the
    GPU's two shares of its peak. Stored: two products of all scores at 0.6 top, and
    13 bytes a score; backward twice the products and 1.5 times the bytes.

    Source: Dao 2023 (FlashAttention-2); Korthikanti et al. 2022.
    """
    model, gpu, s, b, T = way.model, way.nodes.gpu, way.model.seq, way.choice.b, way.choice.T
    operations = 4 * s * s * b * model.hidden / T
    if way.software.flash:
        forward, backward = (operations * way.software.scores / (share * gpu.peak) for share in gpu.flash)
        return forward, 2.5 * backward
    products = operations / (0.6 * gpu.top * gpu.peak)
    moved = STORED * model.heads * s * s * b / T / gpu.bandwidth
    return products + moved, 2 * products + 1.5 * moved


def elementwise(way: Way) -> tuple[float, float]:
    """Return the seconds of norms, sums, masks and activations, (forward, backward).

    A layer of `way` moves these bytes, in units of s b h:

        forward     20 (22 with dropout) + 4 f/h (gated: 6 f/h)
        backward    24 + 6 f/h (gated: 10 f/h)
        both        4 (1 + kappa) for rotary positions

    Terms with f/h or kappa are divided by T, the others with `sequence` only.
    """
    model, choice = way.model, way.choice
    wide, T = model.ffn / model.hidden, choice.T
    rotary = 0 if model.places else 4 * (1 + model.kappa)
    forward = (22 if model.dropout else 20) / along(choice) + ((6 if model.gated else 4) * wide + rotary) / T
    backward = 24 / along(choice) + ((10 if model.gated else 6) * wide + rotary) / T
    seconds = way.software.passes * model.seq * choice.b * model.hidden / way.nodes.gpu.bandwidth
    return forward * seconds, backward * seconds


def tensor_parallel(way: Way) -> float:
    """Return the seconds of exchanges of T shards in one direction of a layer of `way`.

    Two all-reduces of 2 s b h bytes, or with `sequence` their halves, as many bytes.

    Source: Shoeybi et al. 2019; Korthikanti et al. 2022.
    """
    n_bytes = 2 * way.model.seq * way.choice.b * way.model.hidden
    return 4 * half_ring(way.nodes, n_bytes, way.choice.T, way.choice.T)


def layer(way: Way) -> Times:
    """Return {part: (F, I, W)}, the seconds of a layer of `way` and one micro-batch.

    F is the forward, I the input gradient, W the weight gradient. Recomputation adds F
    ("full"), half of the computation of F ("half"), or attention ("selective") to I. W
    adds to the gradient of the earlier micro-batches: it reads and writes `gradient`
    bytes for each parameter, where the product alone would write 2 bytes.
    """
    model, choice, software, gpu = way.model, way.choice, way.software, way.nodes.gpu
    T, rows = choice.T, model.seq * choice.b
    products = sum(product(gpu, rows, size / T) for size in model.matrices)
    weights = sum(product(gpu, rows, size / T, weight=True) for size in model.matrices)
    of_attention, of_elements = attention(way), elementwise(way)
    exchange = tensor_parallel(way) if T > 1 else 0.0
    forward = products + of_attention[0] + of_elements[0]
    exposed = exchange * (1 - software.hidden_T)
    again = {
        "none": 0.0, "selective": of_attention[0], "half": forward / 2, "full": forward + exposed,
    }[choice.recompute]
    gradient = way.recipe.gradient
    read = gradient * (choice.M - 1) / choice.M  # the first of M has no gradient to read
    sums = max(0.0, read + gradient - 2) * model.layer / T / gpu.bandwidth
    parts = {
        "products": (products, products, weights),
        "attention": (*of_attention, 0.0),
        "elementwise": (*of_elements, 0.0),
        "accumulation": (0.0, 0.0, sums),
        "recomputation": (0.0, again, 0.0),
        "tensor parallel": (exposed, max(0.0, exposed - weights) if software.behind_w else exposed, 0.0),
    }
    F, I, W = map(sum, zip(*parts.values(), strict=True))
    ahead, back = (n * software.launch for n in KERNELS)
    parts["launches"] = max(0.0, ahead - F), max(0.0, back - I - W), 0.0
    return parts


def logits(way: Way) -> Times:
    """Return {part: (F, I, W)} of the last product of `way`, h x V/T, and its loss."""
    model, choice, gpu = way.model, way.choice, way.nodes.gpu
    rows = model.seq * choice.b
    ahead = product(gpu, rows, model.table / choice.T)
    moved = LOGITS * rows * model.vocab / choice.T / gpu.bandwidth / 2
    return {
        "products": (ahead, ahead, product(gpu, rows, model.table / choice.T, weight=True)),
        "elementwise": (moved, moved, 0.0),
    }


def times(parts: Times, n: float, more: Any = ()) -> Times:
    """Return n times `parts`, {part: (F, I, W)} of a layer, plus `more` such parts."""
    more = dict(more)
    return {
        part: tuple(n * x + y for x, y in zip(seconds, more.get(part, (0.0,) * 3), strict=True))
        for part, seconds in parts.items()
    }


def seconds_of(parts: Times) -> float:
    """Return the sum of `parts`, {part: (F, I, W)}."""
    return sum(map(sum, parts.values()))


def message(way: Way) -> tuple[float, float]:
    """Return (c, o): seconds of a message between stages of `way`, and of its transfer.

    The message has 2 s b h bytes; each of T GPUs sends 1/T of them, and without
    `sequence` the receivers gather the whole.

    Source: Narayanan et al. 2021, section 4.1.
    """
    nodes, choice = way.nodes, way.choice
    n_bytes = 2 * way.model.seq * choice.b * way.model.hidden
    apart = choice.T * choice.K * (choice.D if choice.inner == "D" else 1)
    if apart <= nodes.gpus:
        wire, latency = n_bytes / choice.T / nodes.inward, nodes.nvlink_latency
    else:
        wire, latency = n_bytes / choice.T / nodes.outward, nodes.nic_latency
    gather = 0.0 if choice.sequence else half_ring(nodes, n_bytes, choice.T, choice.T)
    return wire + latency + gather, wire


def pipeline(
    choice: Choice, slowest: tuple[float, float, float], others: float, message_seconds: tuple[float, float]
) -> float:
    """Return the seconds of M micro-batches in a pipeline of K stages.

    The schedules' own closed forms hold for equal stages. With t = F + I + W of the
    slowest stage, S the sum over all others, c a message, o its transfer, and
    r = S / (K - 1) / t, filling and draining the pipeline takes r times as long, and a
    wait for two messages is (1 - r) t shorter, since the stages between finish earlier.
    Transfers take at least 2 o for each micro-batch, or in GPipe o for each direction.

        interleaved  (M - 1) max(t, 2 v o) + t + S/v + 2 (K v - 1) c

    With equal stages and free messages, a run on the engine takes exactly this time.
    With slow messages it takes nearly this time: ZB-H1 within 5 % if W is the shortest
    of F, I and W, but up to 12 % less if W is twice as long as F and M = K.

    Args:
        choice: the `Choice`.
        slowest: (F, I, W) of the slowest stage.
        others: S, the seconds of all other stages.
        message_seconds: (c, o).
    """
    F, I, W = slowest
    t, S, K, M, (c, o) = F + I + W, others, choice.K, choice.M, message_seconds
    if K == 1:
        return M * t
    steady = (M - 1) * max(t, 2 * choice.v * o)
    if choice.schedule == "gpipe":
        steady = (M - 1) * (max(F, o) + max(I + W, o))
    if choice.schedule == "interleaved":
        return steady + t + S / choice.v + 2 * (K * choice.v - 1) * c
    ticks, c_waited = SCHEDULES.load().facts[choice.schedule].ticks, max(0.0, c - (t - S / (K - 1)) / 2)
    fill = S / (K - 1) / t * (ticks(K, M, F, I, W) - M * t)
    waits = 0.0
    if c_waited:
        longer = max(F, W), max(I, W), W  # with messages, ZB-H1's form holds where W is the shortest
        waits = ticks(K, M, *longer, c_waited) - ticks(K, M, *longer) - 2 * (K - 1) * c_waited
    return max(M * t + waits, steady + t) + fill + 2 * (K - 1) * c


def copies(way: Way, n: float, forward: float, backward: float) -> float:
    """Return the seconds of the exchanges of D replicas that no computation hides.

    ZeRO 0  scatter and gather the gradients, hidden by one backward
         1  scatter the gradients, hidden by a backward; gather the parameters, hidden
            by a forward
         2  as 1, but with a scatter in each micro-batch
         3  two gathers and a scatter in each micro-batch

    Args:
        way: the `Way`.
        n: parameters on this GPU.
        forward, backward: seconds of a micro-batch; the share `overlap` of them hides
            exchanges.

    Source: Rajbhandari et al. 2020; Li et al. 2020 (DDP).
    """
    nodes, choice, D = way.nodes, way.choice, way.choice.D
    if D == 1:
        return 0.0
    n_in = max(1, min(D, nodes.gpus // (choice.T * (choice.K if choice.inner == "K" else 1))))
    scatter = half_ring(nodes, way.recipe.wire * n, D, n_in)
    gather = half_ring(nodes, way.recipe.parameter * n, D, n_in)
    ahead, back = way.software.overlap * forward, way.software.overlap * backward
    if choice.zero == 0:
        return max(0.0, 2 * scatter - back)
    if choice.zero == 3:
        return choice.M * (max(0.0, gather - ahead) + max(0.0, gather + scatter - back))
    return (choice.M if choice.zero == 2 else 1) * max(0.0, scatter - back) + max(0.0, gather - ahead)


def optimizer(way: Way, n: float) -> float:
    """Return the seconds of an update of n parameters on a GPU of `way`.

    It moves 2 gradient + 2 (master + moments) + parameter bytes for each; with ZeRO a
    GPU updates 1/D of them.
    """
    recipe, choice = way.recipe, way.choice
    n_bytes = 2 * recipe.gradient + 2 * (recipe.master + recipe.moments) + recipe.parameter
    return n_bytes * n / (choice.D if choice.zero else 1) / way.nodes.gpu.bandwidth


def step(way: Way) -> dict[str, float]:
    """Return {part: seconds} of a step of `way`, whose time is their sum."""
    model, choice, of_layer, of_logits = way.model, way.choice, layer(way), logits(way)
    _, of_middle, of_last = on_devices(choice, layers_of_stages(model, choice))
    last, middle = times(of_layer, of_last, of_logits), times(of_layer, of_middle)
    total = seconds_of(times(of_layer, model.layers, of_logits))
    slowest = middle if choice.K > 2 and seconds_of(middle) > seconds_of(last) else last
    F, I, W = map(sum, zip(*slowest.values(), strict=True))
    n = parameters_of_stages(model, choice)[0]
    if choice.K > 1:
        n = (of_middle * model.layer + model.table) / choice.T  # parameters of the stage that has most
    t, S = F + I + W, total - F - I - W
    free = pipeline(choice, (F, I, W), S, (0.0, 0.0))
    return {
        **{part: choice.M * sum(seconds) for part, seconds in slowest.items()},
        "bubble": free - choice.M * t,
        "messages": pipeline(choice, (F, I, W), S, message(way)) - free,
        "copies": copies(way, n, F, I + W),
        "optimizer": optimizer(way, n),
    }
