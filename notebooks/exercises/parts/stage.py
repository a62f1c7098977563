"""What notebook 06 asks for: a stage with a stash, and the same with recomputation."""

import numpy as np

from ..judging import Part
from .whole import adding_none, network

ORDER = "F0 F1 F2 B1 B0 F3 B3 B2"   # more than one in the stash, and not emptied as it was filled
SAMPLES = (2, 1, 2, 1)               # of micro-batches 0 to 3


def n_bytes(things: object) -> int:
    """Return the bytes of all arrays in nested lists, tuples, dicts and objects, each array counted once.

    >>> A = np.zeros((2, 3))
    >>> n_bytes({0: [A, (A > 0, None)], 1: A})
    54
    """
    return sum({(array.ctypes.data, array.nbytes): array.nbytes for array in arrays_of(things)}.values())


def arrays_of(things):
    """Yield the arrays in `things`."""
    if isinstance(things, np.ndarray):
        yield things
    elif isinstance(things, (dict, list, tuple)):
        for thing in things.values() if isinstance(things, dict) else things:
            yield from arrays_of(thing)
    elif hasattr(things, "__dict__"):
        yield from arrays_of(vars(things))


def of_stage(my):
    """Yield what a stage returns, keeps and adds up: first with equal layers, then with unequal ones."""
    rng = np.random.default_rng(6)
    stage = my.Stage([*network(my, (3, 3, 3), rng), my.ReLU()])
    yield from _at_work(stage, ORDER, 3, 3, rng)
    stage = my.Stage(network(my, (4, 3, 2), rng))
    yield from _at_work(stage, "F0 B0", 4, 2, rng)


def of_recomputing_stage(my):
    """Yield the same with and without recomputation, and how often the first layer goes forward."""
    for recompute in (False, True):
        rng = np.random.default_rng(7)
        stage = my.Stage([*network(my, (3, 3, 3), rng), my.ReLU()], recompute)
        forwards = _counted(stage.layers[0])
        for words, value in _at_work(stage, ORDER, 3, 3, rng, recompute):
            yield f"recompute={recompute}, {words}", value
        yield (f"recompute={recompute}, in {ORDER}: how often the first layer went forward", len(forwards))
    rng = np.random.default_rng(7)
    stage = my.Stage([*network(my, (3, 3, 3), rng), my.ReLU()])
    forwards = _counted(stage.layers[0])
    stage.backward(0, stage.forward(0, _halves(rng, 3, 2)))
    yield "Stage(layers), in F0 B0: how often the first layer went forward", len(forwards)
    rng = np.random.default_rng(8)
    stage = my.Stage([*network(my, (4, 3, 2), rng)[1:], my.ReLU()], recompute=True)    # a ReLU comes first
    for words, value in _at_work(stage, "F0 F1 B0 B1", 3, 2, rng, True):
        yield f"recompute=True and a ReLU first, {words}", value


def _halves(rng, *shape):
    return rng.integers(-4, 5, shape) / 2


def _counted(layer):
    """Return a list that grows by one entry with each forward of `layer`."""
    calls, plain = [], layer.forward

    def forward(A_prev):
        calls.append(A_prev)
        return plain(A_prev)

    layer.forward = forward
    return calls


def _at_work(stage, order, n_prev, n, rng, recompute=False):
    """Yield what each action of `order` returns, what is in the stash then, and the gradients so far."""
    layers, done = list(stage.layers), []
    for kind, i in ((name[0], int(name[1:])) for name in order.split()):
        done.append(f"{kind}{i}")
        words = "after " + " ".join(done)
        array = _halves(rng, n_prev if kind == "F" else n, SAMPLES[i])
        work = stage.forward if kind == "F" else stage.backward
        handed = yield from adding_none(lambda: work(i, array))
        yield (f"{words}: what {kind}{i} returns",
               f"a tuple of {len(handed)}" if isinstance(handed, tuple) else handed)
        stash = stage.stash
        yield (f"{words}: the micro-batches in the stash",
               sorted(stash) if isinstance(stash, dict) else f"a {type(stash).__name__}, not a dict")
        if kind == "F":    # what is stashed is all that a backward needs, and no more
            caches = n_bytes([array, [layer.cache for layer in layers]])
            if recompute:
                yield f"{words}: the bytes in stash[{i}]", n_bytes(stash[i])
            else:
                yield f"{words}: whether stash[{i}] has no more than the caches", n_bytes(stash[i]) <= caches
            continue
        names = sorted(type(layer).__name__ for layer in stage.gradients)
        yield f"{words}: whose gradients there are", names
        for place, layer in enumerate(layers):
            if hasattr(layer, "W"):
                pair = stage.gradients.get(layer)
                yield f"{words}: dW and db of layer {place}", list(pair) if isinstance(pair, tuple) else pair
    yield f"{words}: most_stashed", stage.most_stashed


LOOP = """for layer in self.layers:
            A = layer.forward(A)
        self.stash[i] = [layer.cache for layer in self.layers]"""
COLLECTED = """collected = []
        for layer in self.layers:
            A_prev, A = A, layer.forward(A)
            collected.append(kept)
        self.stash[i] = collected"""
BETWEEN = """self.stash[i] = [layer.cache for layer in self.layers]
        self.most_stashed = max(self.most_stashed, len(self.stash))
        return A

    def backward(self, i, dA):
        caches = self.stash.pop(i)"""
WITH_BOTH = """self.stash[i] = A_in if self.recompute else [layer.cache for layer in self.layers]
        self.most_stashed = max(self.most_stashed, len(self.stash))
        return A

    def through(self, A):
        for layer in self.layers:
            A = layer.forward(A)
        return A

    def backward(self, i, dA):
        kept = self.stash.pop(i)"""

ONE_PLACE = "Your stash has one place for all micro-batches: F1 throws away what F0 put there. Use stash[i]."
NOTHING_STASHED = "Nothing is in stash[0] after F0, and F1 will overwrite the caches: put them aside first."
OUTPUTS = "Your stash holds what each layer returned. A backward needs what it kept, its `cache`."
KEEPS_BOTH = "With recompute=True your stash holds the caches, too. Stash the input alone."
OTHER = "Your backward takes out another micro-batch's entry. It must be that of micro-batch i, in any order."
IF = "if dW is not None:\n                "
ADD = """sum_dW, sum_db = self.gradients.get(layer, (0, 0))
                self.gradients[layer] = sum_dW + dW, sum_db + db"""
BY_INDEX = "place = self.layers.index(layer)\n                " + ADD.replace("(layer,", "(place,").replace(
    "[layer]", "[place]")
ALL = """if layer in self.gradients:
                dW, db = self.gradients[layer][0] + dW, self.gradients[layer][1] + db
            self.gradients[layer] = dW, db"""
WITH_NONE = "Your gradients take in each ReLU, whose dW and db are None and cannot be added. Leave it out."


def _in_both(kept):
    """Return the mistakes that both versions of a stage allow.

    kept: what the backward calls the entry that it takes out.
    """
    back = f"zip(reversed(self.layers), reversed({kept}))"
    added = "self.gradients[layer] = sum_dW + dW, sum_db + db"
    counted = "max(self.most_stashed, len(self.stash))"
    return (
        ("layer.cache = cache", "pass",
         "Your backward does not put the caches back: layers still have those of their last forward."),
        (back, f"zip(reversed(self.layers), {kept})",
         "Your backward hands each layer another layer's cache: they are in the order of the forward."),
        (back, f"zip(self.layers, {kept})", "Your backward begins at the first layer. The last has dA."),
        (added, "self.gradients[layer] = dW, db",
         "Your gradients are those of the last micro-batch alone: add to the sum, do not overwrite it."),
        (added, "self.gradients[layer] = self.gradients.get(layer, ()) + (dW, db)",
         "Your gradients get longer: + joins two tuples. Add dW to dW, and db to db."),
        (added, f"self.gradients[layer] = sum_dW + dW / {len(SAMPLES)}, sum_db + db / {len(SAMPLES)}",
         "Your gradients are divided by the number of micro-batches. The cost has divided already: add."),
        (ADD, ADD.replace("self.gradients.get(layer, (0, 0))", "self.gradients[layer]"),
         "Your first backward finds no entry of its layer, a KeyError. Begin with two zeros."),
        (ADD, BY_INDEX, "No layer is a key of your gradients. Take the layer itself, not its place."),
        (IF + ADD, ALL, WITH_NONE),
        (IF + ADD, ALL.replace("if layer", "if dW is not None and layer"), WITH_NONE),
        (IF, "if True:\n                ", WITH_NONE),
        *((f"{kept} = self.stash.pop(i)", f"{kept} = self.stash.{other}", OTHER)
          for other in ("pop(min(self.stash))", "popitem()[1]", "pop(0)", "pop(i - 1)")),
        (f"{kept} = self.stash.pop(i)", f"{kept} = self.stash[i]",
         "Your backward leaves its entry in the stash: the memory of a micro-batch is never free again."),
        ("return dA", "return dA, dW, db", "Your backward returns three things. The stage before needs dA."),
        (counted, "self.most_stashed", "most_stashed stays 0: after a forward, compare it with the entries."),
        (counted, "self.most_stashed + 1", "Your most_stashed counts all forwards, not the most at a time."),
        (counted, "len(self.stash)", "Your most_stashed is the number of entries now: keep the largest."),
    )


STAGE_MISTAKES = [
    (BETWEEN, BETWEEN.replace("stash[i]", "stash[0]").replace("pop(i)", "pop(0)"), ONE_PLACE),
    (BETWEEN, BETWEEN.replace("stash[i]", "stash[0]").replace(".pop(i)", "[0]"), ONE_PLACE),
    (BETWEEN, BETWEEN.replace("stash[i]", "stash").replace(".pop(i)", ""), ONE_PLACE),
    (BETWEEN, BETWEEN.replace("stash[i]", "caches").replace("stash.pop(i)", "caches"), NOTHING_STASHED),
    (LOOP, COLLECTED.replace("kept", "A"), OUTPUTS),
    (LOOP, COLLECTED.replace("kept", "A_prev"),
     "Your stash holds what went into each layer, a Linear's cache but not a ReLU's. Stash `layer.cache`."),
    ("self.stash[i] = [", "self.stash[i] = [vars(layer).copy() for layer in self.layers] + [",
     "Your stash holds more than the caches, such as the weights, which are the same for all micro-batches."),
    *_in_both("caches"),
]
RECOMPUTE_MISTAKES = [
    ("self.through(kept)", "pass",
     "Your backward takes the caches as they are, the last forward's. Send the stashed input forward first."),
    ("self.recompute = recompute", "self.recompute = False",
     "With recompute=True your stage still stashes all caches. Stash its input, and compute them again."),
    (WITH_BOTH, WITH_BOTH.replace("A_in if self.recompute else ", "").replace(
        "pop(i)", "pop(i)\n        kept = kept[0] if self.recompute else kept"), KEEPS_BOTH),
    (WITH_BOTH, WITH_BOTH.replace("A_in if self.recompute else [", "[A_in] + [").replace(
        "pop(i)", "pop(i)\n        kept = kept[0] if self.recompute else kept[1:]"), KEEPS_BOTH),
    ("self.recompute = recompute", "self.recompute = True",
     "Your stage goes forward twice even if recompute is False. Then it stashes all caches, as before."),
    ("recompute=False", "recompute",
     "Stage(layers) stops, since your recompute has no default. As before, it stashes all caches."),
    ("A_in if self.recompute", "A if self.recompute",
     "Your stash holds what leaves the stage. Put aside the A that came in, before the loop overwrites it."),
    ("self.through(kept)", "self.forward(i, kept)",
     "Your second forward puts micro-batch i into the stash once more. Send it through the layers only."),
    *_in_both("kept"),
]

PARTS = [
    Part("Stage", 6, of_stage, STAGE_MISTAKES,
         "in whatever order micro-batches come, each backward meets its own caches.", kept=True),
    Part("Stage", 6, of_recomputing_stage, RECOMPUTE_MISTAKES,
         "the same bits from one array an entry; the price is a second forward.", variant="with recompute",
         kept=True),
]
