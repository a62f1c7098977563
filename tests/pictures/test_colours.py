"""The colours of the pictures: readers with any kind of colour vision tell each from each."""

import itertools
import re

import pytest
from matplotlib.colors import to_rgb

from minipipe.plots.canvas import OTHER, STYLES, TRACK, ink, shade
from minipipe.plots.html import template
from minipipe.plots.memory import COLOURS, MEMORY_KINDS
from pictures.colour_vision import SIGHTS, delta_e

LEAST = 15  # Delta E of CIE 1976
# both are weight gradients, and no run has both
ONE_COLOUR = [(("W", shade), ("W*", shade)) for shade in ("bright", "dark")]


def papers():
    """Return {name: colour} of what boxes stand on: paper and idle time of the page, in both themes."""
    light, dark = (
        dict(re.findall(r"--(paper|track): (#\w+);", rule))
        for rule in re.findall(r":root(?:\[[^{]*)? \{(.*?)\}", template(), flags=re.DOTALL)
    )
    assert light["track"].upper() == TRACK, "the page and matplotlib have one colour for idle time"
    found = {f"{name}, light": colour for name, colour in light.items()}
    found |= {f"{name}, dark": colour for name, colour in dark.items()}
    return {name: colour if len(colour) == 7 else f"#{colour[1:] * 2}" for name, colour in found.items()}


def boxes():
    """Return {(kind, shade): colour} of all kinds of work, bright and, where it differs, dark."""
    found = {(kind, "bright"): style["facecolor"] for kind, style in (STYLES | {"other": OTHER}).items()}
    found |= {
        (kind, "dark"): style["dark"] for kind, style in STYLES.items() if style["dark"] != style["facecolor"]
    }
    return found


def too_near(colours, papers):
    """Yield (sight, name, name, Delta E) for each pair of `colours`, or colour and paper, below `LEAST`."""
    pairs = [*itertools.combinations(colours, 2), *itertools.product(colours, papers)]
    both = {**colours, **papers}
    for (one, other), sight in itertools.product(pairs, SIGHTS):
        distance = delta_e(both[one], both[other], sight)
        if distance < LEAST and (one, other) not in ONE_COLOUR:
            yield sight, one, other, round(distance, 1)


def test_delta_e_is_that_of_known_colours():
    """Greys of L* = 50 and 60; sRGB's red and blue; and two colours that one in fifty men mix up."""
    assert delta_e("#777777", "#919191") == pytest.approx(10, abs=0.2)
    assert delta_e("#FF0000", "#0000FF") == pytest.approx(176.3, abs=0.1)
    assert delta_e("#CC79A7", "#999999") > 40 > 7.2 > delta_e("#CC79A7", "#999999", "deuteranopia")


def test_every_kind_of_work_differs_from_every_other_and_from_the_paper_for_all_readers():
    assert list(too_near(boxes(), papers())) == []


@pytest.mark.parametrize("colours", [MEMORY_KINDS, dict(enumerate(COLOURS))], ids=["kinds", "devices"])
def test_parts_of_memory_and_curves_of_devices_differ_for_all_readers(colours):
    assert list(too_near(colours, {"white": "#FFFFFF"})) == []


@pytest.mark.parametrize("kinds", [("F", "B"), ("F", "R"), ("B", "R")])
def test_colours_differ_in_brightness_too(kinds):
    dark, light = sorted(luminance(STYLES[kind]["facecolor"]) for kind in kinds)
    assert light - dark > 0.1


@pytest.mark.parametrize("kind", "FBIWRASG")
def test_the_second_stage_is_darker_and_its_numbers_white(kind):
    light, dark = shade(kind, 0, 2), shade(kind, 1, 2)
    assert luminance(light) - luminance(dark) > 0.15 and (ink(light), ink(dark)) == ("black", "white")
    assert len({shade(kind, place, 4) for place in range(4)}) == 4


def luminance(colour):
    return 0.2126 * to_rgb(colour)[0] + 0.7152 * to_rgb(colour)[1] + 0.0722 * to_rgb(colour)[2]
