"""The equations in an optimizer's docstring, carried out number by number: an update that shares no code."""

import re
from typing import NamedTuple

import numpy as np

from minipipe.arrays import root
from minipipe.exact import Rational

NAME = r"[A-Za-z_]\w*(?:\^(?![\w(]))?"  # the power in m^2 is not a part of the name, the hat of m^ is
EQUATION = re.compile(rf"({NAME}) = (.+)")
OPTION = re.compile(r"(\w+)=(\w+)")
TOKEN = re.compile(rf"\s*(\|\|[^|]+\|\||{NAME}|\d+(?:\.\d+)?|[-+*/^(),])")
FUNCTIONS = {
    "sqrt": np.sqrt, "sign": np.sign, "norm": lambda array: root((array * array).sum()), "abs": abs,
    "max": np.maximum, "min": np.minimum,
}
OPERATORS = {"^": "**"}


class Form(NamedTuple):
    """One form of an update: [(name, Python expression)], the last for W, and the options that it is for."""

    equations: list
    options: dict


def forms_of(kind):
    """Return the `Form`s in the docstring of an optimizer's class.

    Equations are `name = expression`, divided by two spaces, a semicolon or a new line. Each form ends with
    W. Options for which it is stand in its line, such as `nesterov=True`.
    """
    forms, equations = [], []
    for line in kind.__doc__.splitlines():
        segments = [part.strip(" .") for part in re.split(r";|\s{2,}", line)]
        options = {name: value == "True" for name, value in OPTION.findall(line)}
        for segment in segments:
            found = EQUATION.fullmatch(segment)
            if found and not found[2].startswith("="):
                expression = in_python(found[2])
                if expression is not None:
                    equations.append((found[1].replace("^", "_hat"), expression))
                    if found[1] == "W":
                        forms.append(Form(equations, options))
                        equations = []
    return forms


def in_python(text):
    """Return an expression of the docstring as Python; None for words.

    >>> in_python("(1 - beta1^t) g^2 / ||W||")
    '( 1 - beta1 ** t ) * g ** 2 / norm(W)'
    """
    tokens, place = [], 0
    text = text.strip()
    while place < len(text):
        found = TOKEN.match(text, place)
        if found is None:
            return None
        token, place = found[1], found.end()
        if tokens and _ends(tokens[-1]) and _begins(token) and tokens[-1] not in FUNCTIONS:
            tokens.append("*")
        if token.startswith("||"):
            token = f"norm({token.strip('|')})"
        tokens.append(OPERATORS.get(token, token.replace("^", "_hat")))
    return " ".join(tokens)


def _ends(token):
    return token == ")" or token[0].isalnum() or token[0] == "_" or token.startswith("norm(")


def _begins(token):
    return token == "(" or token[0].isalnum() or token[0] in "_|"


def updated(optimizer, W, gradients):
    """Return (W, {name: what the last update has made}) after updates with these gradients, by the equations.

    Weight decay that its equations do not have is that of `Optimizer`: decoupled, W - learning_rate *
    weight_decay * W before the step, or else coupled, g + weight_decay * W.
    """
    forms = [form for form in forms_of(type(optimizer)) if _is_for(form, optimizer)]
    form = max(forms, key=lambda form: len(form.options))
    has_decay = any("decay" in expression for _, expression in form.equations)
    numbers = vars(optimizer) | {"learning_rate": optimizer.learning_rate, "decay": optimizer.weight_decay}
    numbers |= dict(zip(("beta1", "beta2"), getattr(optimizer, "betas", ())))
    made = {name: np.zeros_like(W) for name, _ in form.equations}
    for t, g in enumerate(gradients, 1):
        if optimizer.weight_decay and not has_decay:
            if optimizer.decoupled:
                W = W - optimizer.learning_rate * optimizer.weight_decay * W
            else:
                g = g + optimizer.weight_decay * W
        values = FUNCTIONS | numbers | made | {"t": t, "g": g, "W": W}
        for name, expression in form.equations:
            values[name] = eval(expression, values)
        made = {name: values[name] for name, _ in form.equations}
        W = values["W"]
    return W, made


def _is_for(form, optimizer):
    return all(getattr(optimizer, name, None) == value for name, value in form.options.items())


def exact(optimizer):
    """Return a fresh optimizer of the same kind, whose numbers are rational."""
    twin = optimizer.fresh()
    for name, value in vars(optimizer).items():
        if isinstance(value, float):
            setattr(twin, name, Rational(value))
        elif isinstance(value, tuple):
            setattr(twin, name, tuple(map(Rational, value)))
    return twin
