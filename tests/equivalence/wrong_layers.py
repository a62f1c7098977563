"""Wrong layers, losses and optimizers, each with one mistake, and a piece of the message that names it."""

from typing import ClassVar

import numpy as np

import minipipe as mp
from minipipe.arrays import sigmoid
from minipipe.layers import Layer
from minipipe.losses import Loss
from minipipe.optimizers import Optimizer


def of_linear(name, weights=lambda dW, db, dZ: (dW, db), inputs=lambda dA_prev, dZ: dA_prev):
    """Return a class of Linear layers with these functions of the right derivatives."""
    class Wrong(mp.Linear):
        def backward_weight(self, dZ):
            return weights(*super().backward_weight(dZ), dZ)

        def backward_input(self, dZ):
            return inputs(super().backward_input(dZ), dZ)

    Wrong.__name__ = Wrong.__qualname__ = name
    return Wrong


def of_formula(name, A, dA_prev):
    """Return a class of layers that compute A of A_prev forward, and dA_prev of dZ and A_prev backward."""
    class Wrong(Layer):
        def forward(self, A_prev):
            self.cache = A_prev
            return A(A_prev)

        def backward(self, dZ):
            return dA_prev(dZ, self.cache), None, None

    Wrong.__name__ = Wrong.__qualname__ = name
    return Wrong


DividesByItsM = of_linear("DividesByItsM", lambda dW, db, dZ: (dW / dZ.shape[-1], db))
MultipliesByM = of_linear("MultipliesByM", lambda dW, db, dZ: (dZ.shape[-1] * dW, db))
ForgetsTheSum = of_linear("ForgetsTheSum", lambda dW, db, dZ: (dW, dZ.copy()))
FlatBias = of_linear("FlatBias", lambda dW, db, dZ: (dW, dZ.sum(axis=1)))
Transposed = of_linear("Transposed", lambda dW, db, dZ: (dW.T.copy(), db))
BiasIsZero = of_linear("BiasIsZero", lambda dW, db, dZ: (dW, np.zeros_like(db)))
GradientInFloat64 = of_linear(
    "GradientInFloat64", lambda dW, db, dZ: (dW if dW.dtype == object else dW.astype(np.float64), db)
)
WrongSign = of_linear("WrongSign", inputs=lambda dA_prev, dZ: -dA_prev)

ForgetsAFactor = of_formula("ForgetsAFactor", lambda A_prev: A_prev * A_prev, lambda dZ, A_prev: dZ * A_prev)
ForgetsOutputShape = of_formula(
    "ForgetsOutputShape", lambda A_prev: A_prev.sum(axis=0, keepdims=True),
    lambda dZ, A_prev: dZ + np.zeros_like(A_prev),
)
SamplesFirst = of_formula("SamplesFirst", lambda A_prev: A_prev.T.copy(), lambda dZ, A_prev: dZ.T.copy())
MeanOfTheBatch = of_formula(  # but alone_per_sample is left at True
    "MeanOfTheBatch", lambda A_prev: A_prev - A_prev.mean(axis=-1, keepdims=True),
    lambda dZ, A_prev: dZ - dZ.mean(axis=-1, keepdims=True),
)
OfFiveSamples = of_formula(
    "OfFiveSamples", lambda A_prev: A_prev + np.ones((3, 5), A_prev.dtype), lambda dZ, A_prev: 1 * dZ
)
DividesByZero = of_formula(
    "DividesByZero", lambda A_prev: A_prev / (A_prev.sum(axis=0, keepdims=True) * 0), lambda dZ, A_prev: dZ
)
AlwaysFloat32 = of_formula(
    "AlwaysFloat32", lambda A_prev: A_prev.astype(np.float32) * 2, lambda dZ, A_prev: dZ * 2
)
ForgetsItsBound = of_formula(
    "ForgetsItsBound", lambda Z: np.minimum(Z * (Z > 0), 6), lambda dA, Z: dA * (Z > 0)
)
Softplus1000 = of_formula(  # right, but infinite from 710 on, and from 89 on in float32
    "Softplus1000", lambda Z: np.log(1 + np.exp(Z)), lambda dA, Z: dA * (1 + np.tanh(Z / 2)) / 2
)


class EachOfTheLargest(Layer):  # a maximum over the features; equal ones all get the whole dZ
    def output_shape(self, shape):
        return 1, *shape[1:]

    def forward(self, A_prev):
        A = A_prev.max(axis=0, keepdims=True)
        self.cache = A_prev == A
        return A

    def backward(self, dZ):
        return dZ * self.cache, None, None


class EachOfThePositive(EachOfTheLargest):  # max(0, the largest): 0 is a kink next to those of equals
    def forward(self, A_prev):
        A = super().forward(A_prev)
        self.cache = self.cache & (A > 0)
        return A * (A > 0)


class ForgetsTheSlope(mp.Tanh):
    def backward_input(self, dA):
        return dA.copy()


class SlopeOfZ(mp.Sigmoid):
    def forward(self, Z):
        A = super().forward(Z)
        self.cache = Z
        return A


class ForgetsTheSkip(mp.Tanh):  # A = Z + tanh(Z)
    def forward(self, Z):
        return Z + super().forward(Z)


class ScaleOfGamma(mp.LayerNorm):  # right while gamma is 1, as it is at first
    def backward_input(self, dZ):
        W, self.W = self.W, np.ones_like(self.W)
        dA_prev = super().backward_input(dZ)
        self.W = W
        return dA_prev


class AssignsTokens(mp.Embedding):
    def backward_weight(self, dZ):
        dW = np.zeros((self.n_tokens, self.d), dZ.dtype)
        dW[self.cache] += np.moveaxis(dZ, 0, -1)
        return dW, None


class KeepsItsInput(Layer):
    def forward(self, A_prev):
        self.A_prev = A_prev
        return A_prev * A_prev

    def backward(self, dZ):
        return 2 * self.A_prev * dZ, None, None


class KeepsAStack(Layer):  # right where the last forward has the first backward
    def __init__(self):
        self.stack = []

    def forward(self, A_prev):
        self.stack.append(A_prev)
        return A_prev * A_prev

    def backward(self, dZ):
        return 2 * self.stack.pop() * dZ, None, None


class KeepsItsM(Layer):  # right where all micro-batches have as many samples
    def __init__(self):
        self.b = np.zeros((3, 1))

    def forward(self, A_prev):
        self.m = A_prev.shape[-1]
        return A_prev + self.b.astype(A_prev.dtype)

    def backward(self, dZ):
        return 1 * dZ, None, dZ[:, :self.m].sum(axis=1, keepdims=True)


class Gamma(Layer):  # a parameter that is neither W nor b
    def __init__(self):
        self.gamma = np.ones((3, 1))

    def forward(self, A_prev):
        self.cache = A_prev
        return self.gamma.astype(A_prev.dtype) * A_prev

    def backward(self, dZ):
        return self.gamma.astype(dZ.dtype) * dZ, None, None


class ReusesItsCache(Layer):
    def forward(self, A_prev):
        if getattr(self, "buffer", None) is None or self.buffer.shape != A_prev.shape:
            self.buffer = np.empty_like(A_prev)
        self.buffer[...] = A_prev
        self.cache = self.buffer
        return A_prev * A_prev

    def backward(self, dZ):
        return 2 * self.cache * dZ, None, None


class ReusesItsOutput(Layer):
    def forward(self, A_prev):
        if getattr(self, "out", None) is None or self.out.shape != A_prev.shape:
            self.out = np.empty_like(A_prev)
        return np.multiply(A_prev, 2, out=self.out)

    def backward(self, dZ):
        return 2 * dZ, None, None


class ReusesItsGradient(Layer):  # dA_prev is dZ, and the next forward writes into it
    dZ = None

    def forward(self, A_prev):
        if self.dZ is not None:
            self.dZ[...] = 0
        return 1 * A_prev

    def backward(self, dZ):
        self.dZ = dZ
        return dZ, None, None


class AddsInPlace(mp.Linear):
    def backward_weight(self, dZ):
        dW, db = super().backward_weight(dZ)
        self.dW = getattr(self, "dW", np.zeros_like(dW))
        self.dW += dW
        return self.dW, db


class AddsUp(mp.Linear):
    def backward_weight(self, dZ):
        dW, db = super().backward_weight(dZ)
        self.dW = getattr(self, "dW", 0) + dW
        return self.dW.copy(), db


class ChangesItsInput(mp.ReLU):
    def forward(self, Z):
        A = super().forward(Z)
        Z *= Z > 0
        return A


class ChangesItsGradient(mp.ReLU):
    def backward_input(self, dA):
        dA[~self.cache] = 0
        return dA


class UpdatesItself(mp.Linear):
    def backward_weight(self, dZ):
        dW, db = super().backward_weight(dZ)
        self.W -= dW / 8
        return dW, db


class DrawsAnew(Layer):
    rng = np.random.default_rng(0)

    def forward(self, A_prev):
        self.cache = self.rng.integers(0, 2, A_prev.shape).astype(A_prev.dtype)
        return A_prev * self.cache

    def backward(self, dZ):
        return dZ * self.cache, None, None


class SameMaskInEachPart(Layer):
    def forward(self, A_prev):
        rng = np.random.default_rng(self.step)
        self.cache = (rng.random(A_prev.shape) < 0.5).astype(A_prev.dtype)
        return A_prev * self.cache

    def backward(self, dZ):
        return dZ * self.cache, None, None


class DropsInPredictions(mp.Dropout):
    def forward(self, A_prev):
        training, self.training = self.training, True
        A = super().forward(A_prev)
        self.training = training
        return A


class LosesTheDtype(mp.Linear):
    def forward(self, A_prev):
        return super().forward(A_prev) + np.zeros((self.n, 1))


class LeavesItBesideTheCache(mp.Linear):  # between the halves
    weight_after_input = True

    def backward_input(self, dZ):
        self.dZ = dZ
        return super().backward_input(dZ)

    def backward_weight(self, dZ):
        return super().backward_weight(self.dZ)


class DropsItsCache(mp.Linear):
    def backward_input(self, dZ):
        dA_prev = super().backward_input(dZ)
        self.cache = None
        return dA_prev

    def backward_weight(self, dZ):
        if self.cache is None:
            raise RuntimeError("the cache is gone")
        return super().backward_weight(dZ)

    def backward(self, dZ):
        gradients = self.backward_weight(dZ)
        return self.backward_input(dZ), *gradients


class BiasIsMissing(mp.Linear):
    def backward(self, dZ):
        dA_prev, dW, _ = super().backward(dZ)
        return dA_prev, dW, None


class WholeOfALinear(mp.Linear):
    def backward(self, dZ):
        dA_prev, dW, db = super().backward(dZ)
        return dA_prev, dW, 2 * db


class TwoFormulas(mp.Tanh):
    def backward(self, dA):
        return dA - dA * self.cache * self.cache, None, None

    def backward_input(self, dA):
        return dA * (1 - self.cache) * (1 + self.cache)


class Overflows(mp.Softmax):
    def forward(self, Z):
        self.cache = np.exp(Z) / np.exp(Z).sum(axis=0, keepdims=True)
        return self.cache


class SaysItIsSmall(Layer):
    can_overflow = False

    def forward(self, Z):
        self.cache = np.exp(Z)
        return self.cache

    def backward(self, dA):
        return dA * self.cache, None, None


class InputAlone(Layer):
    def forward(self, A_prev):
        return 2 * A_prev

    def backward(self, dZ):
        return 2 * dZ


class NoReturn(mp.ReLU):
    def forward(self, Z):
        super().forward(Z)


class ReusesOneColumn(Layer):  # W scales; dW of one sample is a view of an array that the layer keeps
    def __init__(self):
        self.W, self.kept = np.ones((3, 1)), np.zeros((3, 2))

    def forward(self, A_prev):
        self.cache = A_prev
        return self.W.astype(A_prev.dtype) * A_prev

    def backward(self, dZ):
        dW = (dZ * self.cache).sum(axis=1, keepdims=True)
        if dZ.shape[1] == 1 and dZ.dtype == np.float64:
            self.kept[:, :1] = dW
            dW = self.kept[:, :1]
        return self.W.astype(dZ.dtype) * dZ, dW, None


class SquareMatrix(Layer):  # right, without splits
    def __init__(self):
        self.W = np.random.default_rng(0).standard_normal((4, 4))

    def forward(self, A_prev):
        self.cache = A_prev
        return self.W.astype(A_prev.dtype) @ A_prev

    def backward(self, dZ):
        return self.W.astype(dZ.dtype).T @ dZ, dZ @ self.cache.T, None


class CutsColumns(SquareMatrix):
    splits: ClassVar = {"outputs": {"W": 1}}


class CutsRows(SquareMatrix):
    splits: ClassVar = {"inputs": {"W": 0}}


class SharesASoftmax(mp.Softmax):
    splits: ClassVar = {"units": {}}


RUNS, ARRAYS, REPEATS, DTYPE = "it runs", "writes into no array", "same input", "float32"
SLOPES, HALVES, CACHE, SUMS = "slopes", "needs only dZ", "all that backward needs", "add up"
LARGE, PREDICTIONS, M = "large inputs", "prediction", "divided by the given m"
SPLITS = "as its `splits` says"
WRONG = [  # (layer, shape of a sample, a piece of the claim, a piece of the message)
    (DividesByItsM(3, 2), (3,), SLOPES, "dW is 5 times too small: does backward divide by its own m?"),
    (MultipliesByM(3, 2), (3,), SLOPES, "dW is 5 times too large"),
    (ForgetsTheSum(3, 2), (3,), RUNS, "db has shape (2, 5): it must be (2, 1): is the sum over the samples"),
    (FlatBias(3, 2), (3,), RUNS, "db has shape (2,): it must be (2, 1); a sum with keepdims=True"),
    (Transposed(3, 2), (3,), RUNS, "dW has shape (3, 2): it is transposed, (2, 3) is right"),
    (Transposed(3, 3), (3,), SLOPES, "dW is transposed"),
    (WrongSign(3, 2), (3,), SLOPES, "dA_prev has the wrong sign"),
    (BiasIsZero(3, 2), (3,), SLOPES, "db is 0: is a term missing"),
    (BiasIsMissing(3, 2), (3,), RUNS, "db is missing: return None for dW and db where there is no W and b"),
    (ForgetsOutputShape(), (3,), RUNS, "output_shape returns (3, 5), but A has shape (1, 5): write"),
    (SamplesFirst(), (3,), RUNS, "A has shape (5, 3): samples are the last axis"),
    (NoReturn(), (3,), RUNS, "forward has returned None"),
    (InputAlone(), (3,), RUNS, "end it with `return dA_prev, dW, db`"),
    (DividesByZero(), (3,), RUNS, "A or a derivative is infinite, or not a number"),
    (ForgetsAFactor(), (3,), SLOPES, "is 0.5 times the slope, at each entry: is a factor"),
    (ForgetsTheSlope(), (3,), SLOPES, "dA_prev is dZ itself: the derivative of what forward computes is"),
    (SlopeOfZ(), (3,), SLOPES, "dA_prev[0, 0] = "),
    (ForgetsTheSkip(), (3,), SLOPES, "dA_prev lacks the summand dZ: is a path past the layer"),
    (ScaleOfGamma(3), (3,), SLOPES, "dA_prev[0, 0] = "),
    (EachOfTheLargest(), (3,), SLOPES, "where entries are equal, does each of them get the whole dZ?"),
    (AssignsTokens(2, 3), (4,), SLOPES, "np.add.at(dW, ids, ...) adds, and dW[ids] += keeps one"),
    (KeepsItsInput(), (3,), CACHE, "It keeps A_prev of the last forward. Put all that backward needs into"),
    (ReusesItsCache(), (3,), CACHE, "the next forward has written into the arrays in cache"),
    (ReusesItsOutput(), (3,), ARRAYS, "the next micro-batch has changed A of this one: return a new array"),
    (AddsInPlace(3, 2), (3,), ARRAYS, "the next micro-batch has changed dW of this one"),
    (AddsUp(3, 2), (3,), REPEATS, "dW differs in a second run: does backward add to what an earlier"),
    (ChangesItsInput(), (3,), ARRAYS, "A_prev was changed: an operation in place"),
    (ChangesItsGradient(), (3,), ARRAYS, "dZ was changed: an operation in place"),
    (UpdatesItself(3, 2), (3,), ARRAYS, "W was changed: an operation in place"),
    (DrawsAnew(), (3,), REPEATS, "or draw random numbers from a generator of its own?"),
    (SameMaskInEachPart(), (3,), SUMS, "or on its place there"),
    (DropsInPredictions(0.5), (3,), PREDICTIONS, "does forward look at self.training?"),
    (MeanOfTheBatch(), (3,), SUMS, "A of a sample depends on the other samples of its micro-batch"),
    (OfFiveSamples(), (3,), SUMS, "on a micro-batch of 1 of 5 samples, ValueError"),
    (LosesTheDtype(3, 2), (3,), DTYPE, "A is float64 in a run in float32: a constant or an array made"),
    (AlwaysFloat32(), (3,), DTYPE, "A is float32 in a run in float64"),
    (GradientInFloat64(3, 2), (3,), DTYPE, "dW is float64"),
    (LeavesItBesideTheCache(3, 2), (3,), HALVES, "dW of the two halves differs from that of the whole"),
    (DropsItsCache(3, 2), (3,), HALVES, "what backward_input has left in cache, and nothing else"),
    (WholeOfALinear(3, 2), (3,), SLOPES, "db is 2 times the slope"),
    (TwoFormulas(), (3,), HALVES, "both compute what backward does, by one formula"),
    (ForgetsItsBound(), (3,), SLOPES, "but the slope is 0, where A_prev["),
    (EachOfThePositive(), (3,), SLOPES, "where entries are equal, does each of them get the whole dZ?"),
    (ReusesItsGradient(), (3,), ARRAYS, "the next micro-batch has changed dZ of this one"),
    (KeepsAStack(), (3,), CACHE, "It keeps stack of the last forward. Put all that backward needs into"),
    (KeepsItsM(), (3,), CACHE, "db is that of another micro-batch. It keeps m of the last forward"),
    (Softplus1000(), (3,), LARGE, "A is inf in float32 for inputs of about 200, where float64 gives 175"),
    (Overflows(), (3,), LARGE, "A is nan in float32 for inputs of about 200, where float64 gives "),
    (SaysItIsSmall(), (3,), LARGE, "the class says can_overflow = False"),
    (ReusesOneColumn(), (3,), ARRAYS, "the next micro-batch of one sample has changed dW of this one"),
    (CutsColumns(), (4,), SPLITS, "splits['outputs'] cuts W along axis 1, but on 2 devices "),
    (CutsRows(), (4,), SPLITS, "splits['inputs'] cuts W along axis 0, but on 2 devices "),
    (SharesASoftmax(), (4,), SPLITS, "splits['units'] cuts A along axis 0, but on 2 devices J differs"),
]


# Losses and optimizers.

def of_error(name, cost=lambda e, m: (e * e).sum() / (2 * m), derivative=lambda e, m: e / m):
    """Return a loss with these functions of A - Y and m; left out, they are the mean squared error's."""
    def J(self, A, Y, m):
        self.cache = A - Y, m
        return cost(A - Y, m)

    return type(name, (Loss,), {"cost": J, "derivative": lambda self, *cache: derivative(*cache)})()


class InPlace(mp.MeanSquaredError):
    def cost(self, A, Y, m):
        A -= Y
        return super().cost(A, 0 * A, m)


class ChangesLabels(mp.MeanSquaredError):
    def cost(self, A, Y, m):
        Y -= A
        return super().cost(-Y, 0 * Y, m)


class Beside(mp.MeanSquaredError):
    def cost(self, A, Y, m):
        J = super().cost(A, Y, m)
        self.error, self.cache = A - Y, (m,)
        return J

    def derivative(self, m):
        return self.error / m


def centred(e):
    return e - e.mean(axis=-1, keepdims=True)


WRONG_LOSSES = [  # (loss, a piece of the claim, a piece of the message)
    (of_error("OwnM", lambda e, m: (e * e).sum() / (2 * e.shape[-1]), lambda e, m: e / e.shape[-1]), M,
     "J is not half as large where the whole mini-batch has twice as many samples"),
    (of_error("NoM", derivative=lambda e, m: 1 * e), M, "dA is not half as large"),
    (of_error("NoTwo", lambda e, m: (e * e).sum() / m), SLOPES, "dA is 0.5 times the slope, at each entry"),
    (of_error("Minus", derivative=lambda e, m: -e / m), SLOPES, "dA has the wrong sign"),
    (of_error("Wide", derivative=lambda e, m: e / np.full(1, m, float)), DTYPE, "dA is float64"),
    (of_error("Centred", lambda e, m: (centred(e) ** 2).sum() / (2 * m), lambda e, m: centred(e) / m), SUMS,
     "J of 5 micro-batches is not that of the full batch"),
    (of_error("Logistic", lambda e, m: np.log(1 + np.exp(e)).sum() / m, lambda e, m: sigmoid(e) / m), LARGE,
     "J is inf in float32"),
    (InPlace(), ARRAYS, "A was changed"), (ChangesLabels(), ARRAYS, "Y was changed"),
    (Beside(), CACHE, "dA is that of another micro-batch. It keeps error of the last forward"),
]


class Plain(Optimizer):
    """A right one; those below change one thing."""

    def __init__(self, learning_rate):
        super().__init__(learning_rate, 0, False)
        self.first_rate = learning_rate

    def step(self, g):
        return (self.learning_rate * g,)


def of_step(name, step, **attributes):
    """Return an optimizer with this `step(self, g, *memory)`."""
    return type(name, (Plain,), {"step": step, **attributes})(0.1)


def momentum_in_attribute(self, g):
    self.u = 0.5 * self.u + g
    return (self.learning_rate * self.u,)


def counted_steps(self, g, u):
    self.t, u = self.t + 1, 0.5 * u + 0.5 * g
    return self.learning_rate * u / (1 - 0.5**self.t), u


class CountsUpdates(Plain):
    k = 0

    def updated(self, parameters):
        self.k += 1
        return super().updated(parameters)

    def step(self, g):
        return (self.learning_rate / self.k * g,)


def in_place(self, g, u):
    u += g
    return self.learning_rate * u, u


WRONG_OPTIMIZERS = [  # (optimizer, a piece of the claim, a piece of the message)
    (of_step("NoTuple", lambda self, g: self.learning_rate * g), "step returns", "step returns no tuple"),
    (of_step("OneMemory", lambda self, g, u, v: (self.learning_rate * g, u), n_memories=2), "step returns",
     "step returns 2 arrays: with n_memories=2"),
    (of_step("Norm", lambda self, g: (np.sqrt((g * g).sum()),)), "step returns", "of shape () for a g"),
    (of_step("InPlace", in_place, n_memories=1), ARRAYS, "an update has changed "),
    (of_step("Attribute", momentum_in_attribute, u=0), "its state", "step keeps self.u from one call to"),
    (of_step("CountsSteps", counted_steps, n_memories=1, t=0), "its state", "step keeps self.t from one"),
    (CountsUpdates(0.1), "after `resume`", "after resume, the next step is another one"),
    (of_step("ByNorm", lambda self, g: (self.learning_rate * g / np.sqrt((g * g).sum()),)), "by itself",
     "write needs_whole_parameters = True in the class"),
    (of_step("FirstRate", lambda self, g: (self.first_rate * g,)), "learning_rate", "read self."),
    (of_step("Uphill", lambda self, g: (-self.learning_rate * g,)), "downhill", "is the sign wrong?"),
]
