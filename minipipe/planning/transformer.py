"""A Transformer, how it is split and trained, and the bytes of the fullest GPU."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import NamedTuple

from ..checks import shown, truth, whole_number
from ..schedules import SCHEDULES as ORDERS
from .hardware import Nodes, checked

SCHEDULES = "1f1b", "gpipe", "interleaved", "zb-h1"
RECOMPUTATIONS = "none", "selective", "half", "full"
SAFE = 0.94  # share of the memory that a choice may fill
WORKSPACE = 0.25  # temporary bytes of a layer, as a share of those that it keeps


@dataclass(frozen=True)
class Transformer:
    """The sizes of a Transformer for language.

    Args:
        name: its name in texts.
        layers: L.
        hidden: h, the width.
        heads: a, which divide h.
        vocab: V, tokens of the vocabulary.
        seq: s, tokens of a sample.
        kv_heads: heads of keys and values, which divide the heads; 0 is as many.
        ffn: f, width inside the MLP; 0 is 4 h.
        gated: whether the MLP has a gate, a third matrix.
        tied: whether embedding and logits share their table.
        places: whether positions are learned; else they are rotary.
        dropout: whether attention weights and both branches have dropout.
        biases: whether products and norms have biases: 13 h parameters a layer in
            addition to the matrices, else 2 h.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    vocab: int
    seq: int
    kv_heads: int = 0
    ffn: int = 0
    gated: bool = False
    tied: bool = True
    places: bool = True
    dropout: bool = False
    biases: bool = True

    def __post_init__(self):
        checked(self, least={"kv_heads": 0, "ffn": 0})
        object.__setattr__(self, "kv_heads", self.kv_heads or self.heads)
        object.__setattr__(self, "ffn", self.ffn or 4 * self.hidden)
        for small, large in (("heads", "hidden"), ("kv_heads", "heads")):
            if getattr(self, large) % getattr(self, small):
                raise ValueError(
                    f"{small}={getattr(self, small)} must divide {large}={getattr(self, large)}"
                )

    @property
    def kappa(self) -> float:
        """Heads of keys and values for each head of queries."""
        return self.kv_heads / self.heads

    @cached_property
    def matrices(self) -> list[float]:
        """Parameters of a layer's products, in x out: Q K V, projection, MLP."""
        h, f = self.hidden, self.ffn
        ways_in = [2 * h * f] if self.gated else [h * f]
        return [h * h * (1 + 2 * self.kappa), h * h, *ways_in, h * f]

    @cached_property
    def layer(self) -> float:
        """Parameters of a layer: h^2 (2 + 2 kappa) + g h f + n h, see `Transformer`.

        g = 3 if the feed-forward is gated, else 2; n = 13 with biases, else 2.
        """
        return sum(self.matrices) + (13 if self.biases else 2) * self.hidden

    @cached_property
    def table(self) -> int:
        """Parameters of the logits' table, V h."""
        return self.vocab * self.hidden

    @cached_property
    def embedding(self) -> int:
        """Parameters before the first layer: V h, and s h if positions are learned."""
        return self.table + self.places * self.seq * self.hidden

    @property
    def flops_of_token(self) -> float:
        """Operations that a token needs: 6 a parameter of a product, and 12 L s h.

        Source: Chowdhery et al. 2022 (PaLM), appendix B. Recomputation does not count.
        """
        products = self.layers * sum(self.matrices) + self.table
        return 6 * products + 12 * self.layers * self.seq * self.hidden

    @classmethod
    def from_config(cls, path: str | PathLike, seq: int | None = None) -> "Transformer":
        """Return the Transformer of a config: llama, mistral, qwen2 or gpt2.

        Args:
            path: the file, a config.json of Hugging Face.
            seq: tokens of a sample; by default the number of positions of the model.

        Raises:
            ValueError: the file is not such a config.
        """
        try:
            config = json.loads(Path(path).read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise ValueError(f"cannot read {path}: there is no such file") from None
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path} is not JSON: {error}") from None
        if not isinstance(config, dict):
            raise ValueError(f"{path} holds {shown(config)}: a config is an object, {{...}}")
        kind = config.get("model_type")
        if not isinstance(kind, str) or kind not in CONFIGS:
            raise ValueError(
                f"{path} has model_type={shown(kind)}: there are formulas for {', '.join(CONFIGS)}; "
                "for another one write Transformer(...)"
            )
        names, traits = CONFIGS[kind]
        sizes = {ours: config[theirs] for ours, theirs in names.items() if config.get(theirs) is not None}
        missing = [theirs for ours, theirs in names.items() if ours not in sizes and ours not in OPTIONAL]
        if missing:
            raise ValueError(
                f"{path} has no {' and no '.join(missing)}: use the config.json that comes with the model"
            )
        sizes = {ours: whole_number(f"{path}: {names[ours]}", size, 1) for ours, size in sizes.items()}
        tied = truth(f"{path}: tie_word_embeddings", config.get("tie_word_embeddings", traits["tied"]))
        given = {} if seq is None else {"seq": seq}
        model = cls(**{"name": kind, **sizes, **traits, "tied": tied, **given})
        width, fitting = config.get("head_dim"), model.hidden // model.heads
        if width not in (None, fitting):
            raise ValueError(
                f"{path}: head_dim={shown(width)}, but hidden / heads = {model.hidden} / {model.heads} = "
                f"{fitting}: there are no formulas for other heads; use a model with head_dim={fitting}"
            )
        return model


OPTIONAL = "kv_heads", "ffn"
_LLAMA = {
    "layers": "num_hidden_layers", "hidden": "hidden_size", "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads", "vocab": "vocab_size", "seq": "max_position_embeddings",
    "ffn": "intermediate_size",
}
_GPT2 = {
    "layers": "n_layer", "hidden": "n_embd", "heads": "n_head", "vocab": "vocab_size", "seq": "n_positions",
    "ffn": "n_inner",
}
ROTARY = {"gated": True, "tied": False, "places": False, "biases": False}
CONFIGS = {  # model_type of a config: ({field: its name there}, fields that all such models share)
    **dict.fromkeys(["llama", "mistral", "qwen2"], (_LLAMA, ROTARY)),
    "gpt2": (_GPT2, {"tied": True, "dropout": True}),
}
MODELS = {
    model.name: model for model in (
        Transformer("llama-7b", 32, 4096, 32, 32_000, 4096, ffn=11_008, **ROTARY),
        Transformer("llama-13b", 40, 5120, 40, 32_000, 4096, ffn=13_824, **ROTARY),
        Transformer("llama3-8b", 32, 4096, 32, 128_256, 8192, 8, 14_336, **ROTARY),
        Transformer("llama3-70b", 80, 8192, 64, 128_256, 8192, 8, 28_672, **ROTARY),
        Transformer("llama3-405b", 126, 16_384, 128, 128_256, 8192, 8, 53_248, **ROTARY),
        Transformer("gpt3-175b", 96, 12_288, 96, 51_200, 2048, dropout=True),
        Transformer("gpt2-xl", 48, 1600, 25, 50_257, 1024, dropout=True),
    )
}


@dataclass(frozen=True)
class Recipe:
    """The bytes of each parameter; not `minipipe.experiments.Recipe`.

    Args:
        parameter: bytes of the copy that computes.
        gradient: bytes of its gradient.
        master: bytes of the copy that is updated, 0 without one.
        moments: bytes of Adam's two moments.
        wire: bytes of a gradient in a message; 0 for as many as in memory.
    """

    parameter: float = 2
    gradient: float = 4
    master: float = 4
    moments: float = 8
    wire: float = 0

    def __post_init__(self):
        checked(self, least={"master": 0, "moments": 0, "wire": 0})
        object.__setattr__(self, "wire", self.wire or self.gradient)


@dataclass(frozen=True)
class Software:
    """How a framework runs a Transformer.

    Args:
        flash: whether attention is one fused kernel; else its scores are stored.
        scores: share of the scores that the fused kernel computes: 0.5, those below the
            diagonal.
        overlap: share of a forward or a backward that can hide exchanges of replicas.
        behind_w: whether W hides the exchanges of T shards in the backward
            (Korthikanti et al. 2022, section 6.2).
        hidden_T: share of the other exchanges of T shards that is hidden.
        launch: seconds of a kernel's launch, 0 if they are hidden.
        passes: the bytes that elementwise kernels move, relative to the best fused.
    """

    flash: bool = True
    scores: float = 0.5
    overlap: float = 0.8
    behind_w: bool = True
    hidden_T: float = 0.0
    launch: float = 0.0
    passes: float = 1.0

    def __post_init__(self):
        least = {"overlap": 0, "hidden_T": 0, "launch": 0}
        checked(self, least=least, below_one=("scores", "overlap", "hidden_T"))


class Choice(NamedTuple):
    """One way to train on D T K GPUs.

    Args:
        D: replicas.
        T: shards of each layer, in one node.
        K: stages.
        b: samples of a micro-batch.
        M: micro-batches of a replica.
        schedule: "1f1b", "gpipe", "interleaved" or "zb-h1".
        v: stages on each device, above 1 for "interleaved" only.
        zero: 0, or what is sharded over replicas: 1 optimizer state, 2 also gradients,
            3 also parameters.
        recompute: "none", "selective" (attention), "half" (of each layer) or "full".
        sequence: whether activations that T leaves whole are split along the sequence.
        inner: "D" or "K": after T, the replicas or the stages have consecutive GPUs.
    """

    D: int
    T: int
    K: int
    b: int
    M: int
    schedule: str = "1f1b"
    v: int = 1
    zero: int = 0
    recompute: str = "none"
    sequence: bool = True
    inner: str = "D"

    def __str__(self):
        words = [f"D={self.D} T={self.T} K={self.K} b={self.b} M={self.M}"]
        words += [self.schedule + (f" v={self.v}" if self.v > 1 else "")] * (self.K > 1)
        words += [f"ZeRO-{self.zero}"] * (self.zero > 0)
        words += [f"recompute {self.recompute}"] * (self.recompute != "none")
        words += ["without sequence"] * (self.T > 1 and not self.sequence)
        words += ["stages next to each other"] * (self.inner == "K")
        return " ".join(words)


@dataclass(frozen=True)
class Way:
    """A way to train a model on nodes.

    Args:
        model, nodes, batch, choice, recipe, software: as for `estimate`.
    """

    model: Transformer
    nodes: Nodes
    batch: int
    choice: Choice
    recipe: Recipe
    software: Software


def kept_of_layer(way: Way) -> float:
    """Return the bytes that a layer of `way` keeps of a micro-batch, with its input.

    In units of s b h, the sum of:

        norms and masks     8 (10 with dropout), divided by T with `sequence` only
        attention, MLP      (2 (1 + 2 kappa) + 2 + 4 f/h (gated: 6 f/h)) / T
        fused attention     4 a/h / T
        stored scores       2 a s/h (5 a s/h with dropout) / T; "selective" drops them

    Source: Korthikanti et al. 2022, table 2; measured on an H200 within 1.6 %.
    """
    model, choice = way.model, way.choice
    h, a = model.hidden, model.heads
    whole = 10 if model.dropout else 8
    parts = 2 * (1 + 2 * model.kappa) + 2 + (6 if model.gated else 4) * model.ffn / h
    if way.software.flash:
        parts += 4 * a / h
    elif choice.recompute != "selective":
        parts += (5 if model.dropout else 2) * a * model.seq / h
    return (whole / along(choice) + parts / choice.T) * model.seq * choice.b * h


def along(choice: Choice) -> int:
    """Return the number of shards of norms and their inputs in `choice`: T, or 1."""
    return choice.T if choice.sequence else 1


def recomputed_layer(way: Way) -> tuple[float, float]:
    """Return (bytes that a layer of `way` keeps of a micro-batch, bytes of workspace).

    "full" keeps the input of a layer, 2 s b h, and needs the bytes of one whole layer
    while it recomputes; "half" keeps the mean of both.
    """
    kept = kept_of_layer(way)
    of_input = 2 * way.model.seq * way.choice.b * way.model.hidden / along(way.choice)
    if way.choice.recompute == "full":
        return of_input, kept
    if way.choice.recompute == "half":
        kept = (of_input + kept) / 2
    return kept, WORKSPACE * kept


def alive(choice: Choice, last: bool) -> float:
    """Return the micro-batches of `choice` alive on the first, or the `last`, device.

    On one of the v stages of a device, a micro-batch counts 1/v. Interleaved: at most
    M, on the first device K + (K - 1)/v, on the last K - (K - 1)/v. Other schedules
    state it among their facts. Source: Narayanan et al. 2021.
    """
    K, M, v = choice.K, choice.M, choice.v
    if choice.schedule == "interleaved":
        return min(M, K - (K - 1) / v if last else K + (K - 1) / v)
    return ORDERS.load().facts[choice.schedule].alive(K, M, K - 1 if last else 0)


def layers_of_stages(model: Transformer, choice: Choice) -> list[int]:
    """Return how many layers of `model` each of the K v stages of `choice` has.

    It is L / (K v) or, if that is not whole, (L + 2) / (K v) with embedding and logits
    as one layer each (Llama 3).
    """
    n = choice.K * choice.v
    if model.layers % n == 0:
        return [model.layers // n] * n
    found = [(model.layers + 2) // n] * n
    found[0] -= 1
    found[-1] -= 1
    return found


def parameters_of_stages(model: Transformer, choice: Choice) -> list[float]:
    """Return for each stage of `choice` the parameters of `model` on each GPU."""
    found = [n * model.layer for n in layers_of_stages(model, choice)]
    found[0] += model.embedding
    found[-1] += 0 if choice.K == 1 and model.tied else model.table
    return [n / choice.T for n in found]


def on_devices(choice: Choice, of_stages: Sequence[float]) -> list:
    """Return the sums of `of_stages` on the first, a middle and the last device.

    choice: as for `memory`.
    """
    K = choice.K
    return [sum(of_stages[k::K]) for k in (0, min(1, K - 1), K - 1)]


def state(way: Way, n: float) -> dict[str, float]:
    """Return {kind: bytes} that a GPU of `way` keeps for its n parameters.

    ZeRO 1 divides the optimizer state by D, 2 also the gradients, 3 also the
    parameters. For the largest layer or table, 2 and 3 also need room for the whole
    gradient, and 3 for the whole parameters, twice.

    Source: Rajbhandari et al. 2020.
    """
    recipe, zero, D = way.recipe, way.choice.zero, way.choice.D
    largest = max(way.model.layer, way.model.table) / way.choice.T
    return {
        "parameters": recipe.parameter * (n / D + 2 * largest if zero == 3 else n),
        "gradients": recipe.gradient * (n / D + largest if zero >= 2 else n),
        "optimizer": (recipe.master + recipe.moments) * (n / D if zero >= 1 else n),
    }


def memory(way: Way) -> dict[str, float]:
    """Return {kind: bytes} of the fullest GPU of `way`: of the first stage or the last.

    Logits keep 10 s b V/T, and the last norm 4 s b h.
    """
    model, choice, of_devices = way.model, way.choice, []
    kept, workspace = recomputed_layer(way)
    layers = on_devices(choice, layers_of_stages(model, choice))
    numbers = on_devices(choice, parameters_of_stages(model, choice))
    for place in (0, -1)[choice.K == 1:]:
        tokens, last = model.seq * choice.b, place == -1
        logits = tokens * (10 * model.vocab / choice.T + 4 * model.hidden / along(choice))
        of_devices.append({
            **state(way, numbers[place]),
            "activations": layers[place] * alive(choice, last) * kept,
            "workspace": workspace,
            "logits": logits if last else 0.0,
            "reserved": way.nodes.gpu.reserved,
        })
    return max(of_devices, key=lambda kinds: sum(kinds.values()))
