"""Colours of planes and roles can be told apart, by everyone and in both themes."""

import itertools
import math
import tomllib
from pathlib import Path

import pytest

from twin.ui import theme
from twin.ui.charts import SLACK_COLOUR

CONFIG = tomllib.loads((Path(__file__).parents[2] / ".streamlit/config.toml").read_text("utf-8"))[
    "theme"
]
# Machado, Oliveira, Fernandes 2009, severity 1: linear RGB as seen with each dichromacy.
SEEN = {
    "full": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritanopia": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}


def linear(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    return [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]


def luminance(colour):
    red, green, blue = linear(colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(a, b):
    dark, light = sorted((luminance(a), luminance(b)))
    return (light + 0.05) / (dark + 0.05)


def lab(rgb):
    rows = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))
    white = (0.9505, 1.0, 1.089)
    xyz = [sum(k * c for k, c in zip(row, rgb, strict=True)) for row in rows]
    f = [
        t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116
        for t in (max(v, 0) / w for v, w in zip(xyz, white, strict=True))
    ]
    return 116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])


def seen(colour, matrix):
    rgb = linear(colour)
    return [min(1, max(0, sum(k * c for k, c in zip(row, rgb, strict=True)))) for row in matrix]


@pytest.mark.parametrize("sight", SEEN)
@pytest.mark.parametrize("group", [theme.PLANE | theme.ROLE, dict(enumerate(theme.SERIES))])
def test_colours_stay_apart_for_every_sight(sight, group):
    for a, b in itertools.combinations(group.values(), 2):
        far = math.dist(lab(seen(a, SEEN[sight])), lab(seen(b, SEEN[sight])))
        assert far > 15, f"{a} and {b} are {far:.1f} apart under {sight}"


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_colours_stand_out_from_both_backgrounds(mode):
    for colour in (*theme.PLANE.values(), *theme.ROLE.values(), *theme.SERIES):
        assert contrast(colour, CONFIG[mode]["backgroundColor"]) >= 2.9


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_the_grey_of_a_stream_that_waits_can_be_seen(mode):
    background = CONFIG[mode]["backgroundColor"]
    *grey, share = map(float, SLACK_COLOUR.removeprefix("rgba(")[:-1].split(","))
    under = bytes.fromhex(background[1:])
    seen_grey = bytes(round(share * g + (1 - share) * u) for g, u in zip(grey, under, strict=True))
    assert contrast(f"#{seen_grey.hex()}", background) >= 1.4


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_words_are_readable(mode):
    page = CONFIG[mode]
    assert contrast(page["textColor"], page["backgroundColor"]) >= 7
    assert contrast(page["linkColor"], page["backgroundColor"]) >= 4.5
    assert contrast("#FFFFFF", page["primaryColor"]) >= 4.3


def test_load_reads_in_grey():
    shades = [luminance(c) for c in theme.SEQUENTIAL]
    assert shades == sorted(shades, reverse=True)


def test_an_unlisted_operator_is_grey():
    assert theme.operator_colour("experts") == theme.OPERATOR["experts"]
    assert theme.operator_colour("unlisted") == theme.OTHER
