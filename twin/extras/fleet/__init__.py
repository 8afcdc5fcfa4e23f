"""A fleet of supernodes behind a front router, over a day of traffic."""

from twin.hooks import Command, MadePart, Page

HOOKS = (
    Page(
        "fleet", "twin.extras.fleet.page", "Fleet", "lan",
        "Many supernodes behind a front router, by region, with some of them lost.",
        "Compare and sweep",
    ),
    Command("fleet", "twin.extras.fleet.answer:fleet"),
    MadePart("fleet", "twin.extras.fleet.question:field_table"),
)  # fmt: skip
