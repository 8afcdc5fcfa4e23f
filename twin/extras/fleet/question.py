"""The question of a fleet, table `[fleet]` of a TOML file: kinds, regions, losses, front router."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, Self

import tomli_w
from pydantic import ValidationError, field_validator, model_validator

from twin.lab.ask import scenario_named
from twin.lab.files import decode_text, printable, read_bytes, toml_table
from twin.scenario import Scenario
from twin.scenario.declaration import Section, choice, quantity, rows, text, unless, when
from twin.scenario.fields import fields, value_text
from twin.scenario.words import problem_sentence

FILE_BYTES_MAX = 64 * 1024
SUPERNODES_MAX = 10_000
HASHED = when("router", "hash")
UNEVEN = unless("router", "round_robin")


class FleetError(ValueError):
    """An invalid fleet: one sentence naming what, where and what would be right."""


class Region(Section):
    """A region's share of the traffic, and the offset of its clocks."""

    name: str = text(..., "Name", least=1, most=40)
    share: float = quantity(1.0, "parts", "Part of the traffic", (0.001, 1000))
    """Parts of the traffic that come from this region."""
    shift_h: float = quantity(0.0, "h", "Clocks ahead by", (0, 24))
    """Hours by which its day is ahead, an hour being a 24th of the length of the traffic's day."""


class Kind(Section):
    """Supernodes of one machine and deployment."""

    name: str = text(..., "Name", least=1, most=40)
    scenario: str = text(..., "Scenario", least=1, most=200)
    """A preset's key, a scenario file next to the fleet's, or the digest of a stored scenario."""
    count: int = quantity(1, "supernodes", "Supernodes", (1, SUPERNODES_MAX))
    """How many of them there are."""
    region: str = text("", "Region", most=40)
    """Whose traffic they take; empty: that of every region."""
    weight: float = quantity(1.0, "", "Weight", (0.001, 1000), applies=UNEVEN)
    """Of each against other supernodes that take the same traffic."""


class Lost(Section):
    """A lost supernode, which may come back."""

    kind: str = text(..., "Kind", least=1, most=40)
    number: int = quantity(0, "", "Number", (0, SUPERNODES_MAX - 1))
    """Which one of its kind, counted from 0."""
    from_s: float = quantity(0.0, "s", "Lost at", (0, 604_800))
    """When it stops: what it was serving begins again elsewhere."""
    to_s: float = quantity(0.0, "s", "Back at", (0, 604_800))
    """When it takes traffic again, empty as after a start; 0: not within the run."""


class Fleet(Section):
    """Supernodes behind a front router that does not look at their state."""

    name: str = text("A fleet", "Name", most=120)
    """Short name."""
    traffic: str = text("", "Traffic of", most=200)
    """The scenario whose traffic, SLO, clients and warm-up all have; empty: that of the first kind.
    Named as kinds name theirs."""
    rate_req_per_s: float = quantity(0.0, "req/s", "Request rate", (0, 100_000_000))
    """Mean arrival rate of the whole fleet; 0: for each supernode what the traffic's scenario says.
    """
    horizon_s: float = quantity(0.0, "s", "Simulated time", (0, 604_800))
    """0: that of the traffic's scenario."""
    router: Literal["hash", "weighted", "round_robin"] = choice(
        "hash", "Front router", options={"weighted": "Weighted at random"}
    )
    """By a hash of the session or tenant, which keeps each at one supernode; at random by weight;
    or in turn. One that looks at load is a scenario of its own, with several supernodes and
    `router.front`: the preset Four supernodes behind a front router."""
    sticky: Literal["session", "tenant"] = choice("session", "Hash of", applies=HASHED)
    """What is hashed: sessions, or requests where there are none; or tenants."""
    spill: Literal["region", "all"] = choice(
        "region", "A lost supernode's share goes to", options={
            "region": "Supernodes that take the same traffic", "all": "All supernodes"}
    )  # fmt: skip
    """Who takes the traffic of a lost supernode, by weight."""
    resend_s: float = quantity(30.0, "s", "Sent again within", (1, 3600))
    """Requests under way at a supernode that is lost begin again elsewhere, evenly over this time,
    or until a supernode is lost or comes back where that is sooner."""
    seed: int = quantity(1, "", "Seed", (0, 2**31 - 1))
    """Of the first supernode of each kind."""
    seeds: int = quantity(1, "seeds", "Different seeds", (1, 64))
    """Supernodes that are alike take turns at so many seeds; those of one seed are one run."""
    kinds: tuple[Kind, ...] = rows("Kinds of supernodes", most=16)
    regions: tuple[Region, ...] = rows("Regions", most=24)
    """None: all traffic is of one."""
    lost: tuple[Lost, ...] = rows("Lost supernodes", most=32)

    @field_validator("router", mode="before")
    @classmethod
    def _refuse_least_loaded(cls, router: object) -> object:
        """The router; raises ValueError for one that looks at load, which is no fleet's."""
        if router == "least_loaded":
            raise ValueError(
                "looks at what runs inside, which needs one simulation of all supernodes: take "
                "a scenario with supernode.supernodes and router.front = least_loaded, or here "
                "'hash', 'weighted' or 'round_robin'"
            )
        return router

    @model_validator(mode="after")
    def _refuse_disagreements(self) -> Self:
        """The fleet; raises ValueError with the first disagreement between its rows."""
        if problems := _disagreements(self):
            raise ValueError(problems[0])
        return self

    @property
    def supernodes(self) -> int:
        """Number of supernodes of all kinds."""
        return sum(kind.count for kind in self.kinds)


def _disagreements(fleet: Fleet) -> list[str]:
    """Sentences on rows of a fleet that contradict each other; each is valid alone."""
    kind_of = {kind.name: kind for kind in fleet.kinds}
    regions = {region.name for region in fleet.regions}
    is_by_tenant = fleet.router == "hash" and fleet.sticky == "tenant"
    sentences = [] if fleet.kinds else ["kinds is empty: a fleet needs a kind of supernodes"]
    if fleet.supernodes > SUPERNODES_MAX:
        sentences.append(f"kinds have {fleet.supernodes:,} supernodes: at most {SUPERNODES_MAX:,}")
    if len(kind_of) < len(fleet.kinds) or len(regions) < len(fleet.regions):
        sentences.append("two kinds or two regions have one name: give each its own")
    sentences += [
        f"kinds.{i}.region = {kind.region!r} is no region: take one of {', '.join(sorted(regions))}"
        if regions else f"kinds.{i}.region = {kind.region!r}, but the fleet has no regions: add it"
        for i, kind in enumerate(fleet.kinds) if kind.region and kind.region not in regions
    ]  # fmt: skip
    served_regions = {kind.region for kind in fleet.kinds}
    sentences += [
        f"regions.{i}: no kind takes the traffic of {region.name}: give one that region, or none"
        for i, region in enumerate(fleet.regions) if not served_regions & {region.name, ""}
    ]  # fmt: skip
    if fleet.router == "round_robin" and any(kind.weight != 1.0 for kind in fleet.kinds):
        sentences.append("router = round_robin has no weights: take weighted, or weights of 1")
    if fleet.lost and is_by_tenant:
        sentences.append("sticky = tenant needs no lost supernodes: a run's tenants cannot change")
    regions_apart = {region.name for region in fleet.regions} if len(fleet.regions) > 1 else set()
    if regions_apart and "" in served_regions and (fleet.router == "round_robin" or is_by_tenant):
        setting = "router = round_robin" if fleet.router == "round_robin" else "sticky = tenant"
        sentences.append(
            f"{setting} needs supernodes of one region each: name the region of each kind"
        )
    for i, row in enumerate(fleet.lost):
        if row.kind not in kind_of:
            sentences.append(f"lost.{i}.kind = {row.kind!r} is no kind: {', '.join(kind_of)} are")
        elif row.number >= kind_of[row.kind].count:
            sentences.append(
                f"lost.{i}.number = {row.number} is beyond the {kind_of[row.kind].count} of "
                f"{row.kind}: they count from 0"
            )
        if row.to_s and row.to_s <= row.from_s:
            sentences.append(f"lost.{i}.to_s = {row.to_s:g} s must be after {row.from_s:g} s, or 0")
    for i, row in enumerate(fleet.lost):
        earlier_losses = [
            loss for loss in fleet.lost[:i] if (loss.kind, loss.number) == (row.kind, row.number)
        ]
        if any(not loss.to_s or loss.to_s >= row.from_s for loss in earlier_losses):
            sentences += [f"lost.{i}: {row.kind} {row.number} is lost already at {row.from_s:g} s"]
    return sentences


def field_table(_rows: object, table: Callable[[list[dict[str, Any]]], str]) -> str:
    """Markdown table of the fields of a fleet file: name, default, accepted values, unit, meaning;
    table: formats rows as such a table."""
    return table([
        {"field": f"`{path}`",
         "default": "required" if field.required else value_text(field.default),
         "accepts": field.accepted_text(), "unit": field.unit,
         "what it is": f"{field.label}: {field.help}"}
        for path, field in fields(Fleet).items() if field.kind is not tuple
    ])  # fmt: skip


Named = Callable[[str], Scenario]


def fleet_from(table: dict[str, Any]) -> Fleet:
    """The fleet with these fields, as plain values by name; raises FleetError in one sentence."""
    try:
        return Fleet.model_validate(table)
    except ValidationError as error:
        sentence = problem_sentence(error).replace("a field of a scenario", "a field of a fleet")
        raise FleetError(sentence) from None


def fleet_of_toml(data: bytes, name: str) -> Fleet:
    """The fleet of a TOML file's bytes; raises FleetError with one sentence that names it."""
    toml_text = decode_text(data, name, FILE_BYTES_MAX, FleetError, "fleet")
    table = toml_table(toml_text, printable(name), FleetError)
    if set(table) != {"fleet"} or not isinstance(table["fleet"], dict):
        raise FleetError(f"{printable(name)} should hold one table [fleet] and tables below it")
    try:
        return fleet_from(table["fleet"])
    except FleetError as error:
        raise FleetError(f"{printable(name)}: {error}") from None


def fleet_to_toml(fleet: Fleet) -> str:
    """The text of a fleet file (TOML), without fields that have their defaults."""
    return tomli_w.dumps({"fleet": fleet.model_dump(mode="json", exclude_defaults=True)})


def load_fleet(path: Path) -> tuple[Fleet, Named]:
    """(fleet of a file, finder of presets and of files next to it by name). Raises FleetError."""

    def scenario_of(name: str) -> Scenario:
        """The scenario of a preset's key or of a file next to the fleet's."""
        return scenario_named(str(path.parent / name) if name.endswith(".toml") else name)

    return fleet_of_toml(read_bytes(path, FILE_BYTES_MAX, FleetError), path.name), scenario_of
