"""What notebook 06 says to stages that are not written as its solution is: right ones and wrong ones."""

from fractions import Fraction

import numpy as np
import pytest

from exercises.judging import judged, module_of, part_named

STAGE, RECOMPUTING = part_named("Stage"), part_named("Stage with recompute")

BY_PLACE = """
class Stage:
    def __init__(self, layers):
        self.layers = layers
        self.stash = {}
        self.most_stashed = 0
        self.gradients = {}

    def forward(self, i, A):
        caches = []
        for layer in self.layers:
            A = layer.forward(A)
            caches.append(layer.cache)
        self.stash[i] = caches
        if len(self.stash) > self.most_stashed:
            self.most_stashed = len(self.stash)
        return A

    def backward(self, i, dA):
        caches = self.stash[i]
        del self.stash[i]
        for place in range(len(self.layers) - 1, -1, -1):
            layer = self.layers[place]
            layer.cache = caches[place]
            dA, dW, db = layer.backward(dA)
            if dW is None:
                continue
            if layer in self.gradients:
                old_dW, old_db = self.gradients[layer]
                dW, db = old_dW + dW, old_db + db
            self.gradients[layer] = (dW, db)
        return dA
"""

WITH_DICTS = """
def run_through(layers, A):
    kept = {}
    for layer in layers:
        A = layer.forward(A)
        kept[layer] = layer.cache
    return A, kept


class Stage:
    def __init__(self, layers, recompute=False):
        self.layers, self.recompute = layers, recompute
        self.stash, self.gradients, self.most_stashed = {}, {}, 0

    def forward(self, i, A_prev):
        A, kept = run_through(self.layers, A_prev)
        self.stash[i] = {"input": A_prev} if self.recompute else kept
        self.most_stashed = max(len(self.stash), self.most_stashed)
        return A

    def backward(self, i, dA):
        kept = self.stash.pop(i)
        if self.recompute:
            _, kept = run_through(self.layers, kept["input"])
        for layer in self.layers[::-1]:
            layer.cache = kept[layer]
            dA, dW, db = layer.backward(dA)
            if dW is not None:
                pair = self.gradients.get(layer, [0 * dW, 0 * db])
                self.gradients[layer] = [pair[0] + dW, pair[1] + db]
        return dA
"""


IN_ONE_PLACE = BY_PLACE.replace("        del self.stash[i]\n", "")

RIGHT = {
    STAGE: [BY_PLACE, WITH_DICTS,
            BY_PLACE.replace("self.stash[i] = caches", "self.stash[i] = tuple(caches)")],
    RECOMPUTING: [WITH_DICTS, WITH_DICTS.replace('{"input": A_prev}', '{"input": A_prev.copy()}'),
                  WITH_DICTS.replace("layers, recompute=False", "layers, recompute: bool = False")],
}

WRONG = {
    STAGE: [
        (BY_PLACE, "caches = self.stash[i]", "caches = self.stash[max(self.stash)]",
         "what B1 returns: yours has shape (3, 2)"),
        (BY_PLACE, "layer.cache = caches[place]", "cache = caches[place]", "does not put the caches back"),
        (BY_PLACE, "caches[place]", "caches[len(self.layers) - 1 - place]", "another layer's cache"),
        (BY_PLACE, "for place in range(len(self.layers) - 1, -1, -1)", "for place in range(len(self.layers))",
         "begins at the first layer"),
        (BY_PLACE, "dW, db = old_dW + dW, old_db + db", "pass", "last micro-batch alone"),
        (BY_PLACE, "            if layer in", "            dW, db = dW / 4, db / 4\n            if layer in",
         "divided by the number of micro-batches"),
        (BY_PLACE, "        del self.stash[i]\n", "", "leaves its entry in the stash"),
        (BY_PLACE, "caches.append(layer.cache)", "caches.append(A)", "what each layer returned"),
        (BY_PLACE, "            A = layer.forward(A)\n            caches.append(layer.cache)",
         "            caches.append(A)\n            A = layer.forward(A)", "what went into each layer"),
        (BY_PLACE, "self.most_stashed = len(self.stash)", "pass", "most_stashed stays 0"),
        (BY_PLACE, "if len(self.stash) > self.most_stashed:\n            self.most_stashed = len(self.stash)",
         "self.most_stashed += 1", "counts all forwards"),
        (BY_PLACE, "if len(self.stash) > self.most_stashed:\n            self.most_stashed = len(self.stash)",
         "self.most_stashed = len(self.stash)", "the number of entries now"),
        (BY_PLACE, "return dA", "return dA, dW, db", "returns three things"),
        (BY_PLACE, "        return A\n", "", "`forward` returns nothing"),
        (BY_PLACE, "        return dA\n", "", "`backward` returns nothing"),
        (BY_PLACE, "self.gradients[layer] = (dW, db)", "self.gradients[place] = (dW, db)",
         "the layer itself as the key, not its place"),
        (IN_ONE_PLACE, "self.stash[i]", "self.stash", "one place for all micro-batches"),
        (BY_PLACE, "            if dW is None:\n                continue\n", "", "take in each ReLU"),
        (WITH_DICTS, "            if dW is not None:\n", "            if True:\n", "take in each ReLU"),
        (WITH_DICTS, "self.gradients.get(layer, [0 * dW, 0 * db])", "self.gradients[layer]", "is a KeyError"),
        (BY_PLACE, "caches = self.stash[i]\n        del self.stash[i]", "_, caches = self.stash.popitem()",
         "takes out the newest entry"),
        (BY_PLACE, "caches = self.stash[i]\n        del self.stash[i]",
         "caches = self.stash.pop(next(iter(self.stash)))", "takes out the oldest entry"),
        (WITH_DICTS, "self.stash.pop(i)", "self.stash.pop(i - 1)", "takes out another micro-batch's entry"),
        (BY_PLACE, "self.stash[i] = caches", "self.stash[i] = caches + [self.layers[0].W.copy()]",
         "holds more than the caches"),
        (BY_PLACE, "self.stash[i] = caches", "pass", "Nothing is in stash[0] after F0"),
        (BY_PLACE, "caches.append(layer.cache)", "caches.append(cache)", "uses `cache`, which is not"),
    ],
    RECOMPUTING: [
        (WITH_DICTS, '_, kept = run_through(self.layers, kept["input"])',
         "kept = {layer: layer.cache for layer in self.layers}", "takes the caches as they are"),
        (WITH_DICTS, "self.layers, self.recompute = layers, recompute",
         "self.layers, self.recompute = layers, False", "still stashes all caches"),
        (WITH_DICTS, "self.layers, self.recompute = layers, recompute",
         "self.layers, self.recompute = layers, True", "even if recompute is False"),
        (WITH_DICTS, '{"input": A_prev}', '{"input": A_prev, "caches": kept}', "stash is as full as without"),
        (WITH_DICTS, '{"input": A_prev}', '{"input": A}', "what leaves the stage"),
        (WITH_DICTS, '_, kept = run_through(self.layers, kept["input"])',
         'self.forward(i, kept["input"])\n            kept = {layer: layer.cache for layer in self.layers}',
         "puts micro-batch i into the stash once more"),
        (WITH_DICTS, "kept = self.stash.pop(i)", "kept = self.stash[i]", "leaves its entry in the stash"),
        (WITH_DICTS, "layer.cache = kept[layer]", "pass", "does not put the caches back"),
        (WITH_DICTS, "[pair[0] + dW, pair[1] + db]", "[dW, db]", "last micro-batch alone"),
        (WITH_DICTS, '_, kept = run', 'dA, kept = run', "overwrites dA"),
        (WITH_DICTS, "recompute=False", "recompute=1", "recompute is False by default"),
        (WITH_DICTS, "recompute=False", "recompute", "the default is False"),
        (WITH_DICTS, "self.stash.pop(i)", "self.stash.pop(max(self.stash))", "the newest entry"),
        (BY_PLACE, "def", "def", "__init__() takes 2 positional arguments but 3 were given"),
    ],
}


@pytest.mark.parametrize("part", RIGHT, ids=lambda part: part.title)
def test_other_right_stages_are_right(part):
    for code in RIGHT[part]:
        assert judged(part, code).startswith("Right: "), code


@pytest.mark.parametrize("part", WRONG, ids=lambda part: part.title)
def test_wrong_stages_get_the_sentence_of_their_mistake(part):
    for code, old, new, words in WRONG[part]:
        assert old in code
        sentence = judged(part, code.replace(old, new))
        assert words in sentence and not sentence.startswith("Right:"), (new, sentence)


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("order", ["F0 B0 F1 B1 F2 B2", "F0 F1 F2 B2 B1 B0", "F2 F0 B2 F1 B0 B1"])
def test_the_solution_has_the_gradients_of_the_whole_mini_batch_in_any_order(order, recompute):
    my, rng = module_of(RECOMPUTING, RECOMPUTING.solution), np.random.default_rng(6)
    layers = [my.Linear(3, 4, rng), my.ReLU(), my.Linear(4, 2, rng)]
    for layer in layers[::2]:
        layer.W, layer.b = fractions(rng, layer.W.shape), fractions(rng, layer.b.shape)
    X, Y = fractions(rng, (3, 7)), fractions(rng, (2, 7))
    whole, stage, outputs = my.Stage(layers), my.Stage(layers, recompute), {}
    whole.backward(0, my.cost(whole.forward(0, X), Y, 7)[1])
    for name in order.split():
        i = int(name[1:])
        if name[0] == "F":
            outputs[i] = stage.forward(i, my.micro_batches(X, 3)[i])
        else:
            stage.backward(i, my.cost(outputs[i], my.micro_batches(Y, 3)[i], 7)[1])
    for layer in layers[::2]:
        for found, expected in zip(stage.gradients[layer], whole.gradients[layer], strict=True):
            assert np.array_equal(found, expected)


def fractions(rng, shape):
    numbers = [Fraction(int(n), 3) for n in rng.integers(-4, 5, np.prod(shape))]
    return np.array(numbers, dtype=object).reshape(shape)
