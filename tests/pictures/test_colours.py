"""The colours of the pictures: readers with any kind of colour vision tell each from each.

Sources: Machado, Oliveira and Fernandes 2009, "A physiologically-based model for simulation of color vision
deficiency", table 1 (severity 1.0); IEC 61966-2-1 for sRGB; CIE 1976 for L*a*b* and Delta E.
"""

import itertools
import re

import numpy as np
import pytest
from matplotlib.colors import to_hex, to_rgb

from minipipe.plots.canvas import OTHER, STYLES, TRACK, ink, shade
from minipipe.plots.curves import COLOURS, MEMORY_KINDS
from minipipe.plots.html import resource

LEAST = 15  # Delta E of CIE 1976
# both are weight gradients, and no run has both
# what an eye of each kind makes of linear red, green and blue
SIGHTS = {
    "normal": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "protanopia": [
        [0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881],
    ],
    "tritanopia": [
        [1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900],
    ],
}
XYZ_OF_RGB = [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750],
              [0.0193339, 0.1191920, 0.9503041]]
JOIN = 6 / 29  # CIE: below its cube, the cube root of L*a*b* is a line


def delta_e(one, other, sight="normal"):
    """Return the distance of two colours in L*a*b* (CIE 1976), as readers with that `sight` see them.

    one, other: "#RRGGBB".
    """
    return float(np.linalg.norm(lab(one, sight) - lab(other, sight)))


def lab(colour, sight="normal"):
    """Return L*, a* and b* of a colour "#RRGGBB", as readers with that `sight` see it."""
    encoded = np.array([int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(encoded <= 0.04045, encoded / 12.92, ((encoded + 0.055) / 1.055) ** 2.4)
    seen = np.clip(np.array(SIGHTS[sight]) @ linear, 0, 1)
    relative = (np.array(XYZ_OF_RGB) @ seen) / np.sum(XYZ_OF_RGB, axis=1)  # of white
    x, y, z = np.where(relative > JOIN**3, np.cbrt(relative), relative / (3 * JOIN**2) + 4 / 29)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def tones():
    """Return {theme: {variable: colour}}, from the style of the pages."""
    rules = re.findall(r":root(?:\[[^{]*)? \{(.*?)\}", resource("view.css"), flags=re.DOTALL)
    pairs = zip(("light", "dark"), rules, strict=True)
    return {theme: dict(re.findall(r"--(\w+): (#\w{6});", rule)) for theme, rule in pairs}


def papers():
    """Return {name: colour} of what boxes stand on: paper and idle time, of pages and pictures."""
    found = {(name, theme): tone[name] for theme, tone in tones().items() for name in ("paper", "track")}
    return found | {"picture": TRACK}


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
        if distance < LEAST:
            yield sight, one, other, round(distance, 1)


def test_delta_e_matches_known_colours():
    """Greys of L* = 50 and 60; sRGB's red and blue; and two colours that one in fifty men mix up."""
    assert delta_e("#777777", "#919191") == pytest.approx(10, abs=0.2)
    assert delta_e("#FF0000", "#0000FF") == pytest.approx(176.3, abs=0.1)
    assert delta_e("#CC79A7", "#999999") > 40 > 7.2 > delta_e("#CC79A7", "#999999", "deuteranopia")


def test_all_readers_tell_kinds_of_work_and_paper_apart():
    assert list(too_near(boxes(), papers())) == []


@pytest.mark.parametrize("colours", [MEMORY_KINDS, dict(enumerate(COLOURS))], ids=["kinds", "devices"])
def test_all_readers_tell_memory_and_curves_apart(colours):
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


def test_all_text_of_the_pages_stands_out():
    """By 4.5 to 1, as WCAG 2.2 asks at level AA; inverse text is on a pressed button, a tip and a tag."""
    low = []
    for page, tone in tones().items():
        pairs = [(text, paper) for text in ("ink", "soft", "alarm") for paper in ("paper", "field", "track")]
        for text, paper in [*pairs, ("paper", "ink"), ("paper", "alarm")]:
            if text in tone and paper in tone and contrast(tone[text], tone[paper]) < 4.5:
                low.append((page, text, paper, round(contrast(tone[text], tone[paper]), 2)))
    assert low == []
    on_boxes = {colour: contrast(to_hex(ink(colour)), colour) for colour in boxes().values()}
    assert min(on_boxes.values()) >= 4.5, on_boxes


def contrast(one, other):
    """Return the ratio of two colours' luminances, as WCAG 2 defines it: 1 to 21."""
    encoded = np.array([to_rgb(one), to_rgb(other)])
    linear = np.where(encoded <= 0.04045, encoded / 12.92, ((encoded + 0.055) / 1.055) ** 2.4)
    low, high = sorted(linear @ XYZ_OF_RGB[1])
    return (high + 0.05) / (low + 0.05)


def luminance(colour):
    return 0.2126 * to_rgb(colour)[0] + 0.7152 * to_rgb(colour)[1] + 0.0722 * to_rgb(colour)[2]
