"""How far apart two colours are for readers with each kind of colour vision.

Sources: Machado, Oliveira and Fernandes 2009, "A physiologically-based model for simulation of color vision
deficiency", table 1 (severity 1.0); IEC 61966-2-1 for sRGB; CIE 1976 for L*a*b* and Delta E.
"""

import numpy as np

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
