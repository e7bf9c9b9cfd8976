"""Contents of a sweep's file; each key is explained in docs/how-to/sweep.md."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, JsonValue, model_validator

from empo_core import Config, ConfigOutput
from empo_core.config import ExecutorRef
from empo_executors.needs import NeedsParams

SEED = "seed"
MOST_TRIALS = 100_000
WHOLE_NUMBERS = re.compile(r"(-?\d{1,18})\.\.(-?\d{1,18})")


def expanded(values: object) -> object:
    """``a..b`` as the whole numbers from a to b; anything else as it is.

    Raises:
        ValueError: if the text is no range, or the range has more than ``MOST_TRIALS`` numbers.
    """
    if not isinstance(values, str):
        return values
    match = WHOLE_NUMBERS.fullmatch(values.strip())
    if match is None:
        raise ValueError(f"write a list of values, or whole numbers as 0..9 (got {values!r})")
    low, high = int(match[1]), int(match[2])
    if not low <= high < low + MOST_TRIALS:
        raise ValueError(
            f"the range {values!r} must go upwards, as in 1..3, and have at most {MOST_TRIALS:,} "
            "numbers"
        )
    return list(range(low, high + 1))


Values = Annotated[
    list[JsonValue], BeforeValidator(expanded, json_schema_input_type=list[JsonValue] | str)
]


def _text(value: JsonValue) -> str:
    """A value as text; equal numbers have equal ones, as 1 and 1.0."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return f"{value:.17g}" if is_number else repr(value)


class Objective(Config):
    """A number by which trials are judged."""

    key: str = Field(description="Its dotted path in results/summary.json.")
    direction: Literal["maximize", "minimize"] = Field(
        "maximize", description="Whether more is better, or less."
    )


class Range(Config):
    """Numbers to search."""

    low: float = Field(description="The least.")
    high: float = Field(description="The greatest.")
    log: bool = Field(False, description="Search the logarithm evenly; low must be above 0.")
    integer: bool = Field(False, description="Whole numbers only.")
    step: float | None = Field(None, gt=0, description="Only low plus a multiple of this.")

    @model_validator(mode="after")
    def _is_a_range(self) -> Range:
        if self.low > self.high or (self.log and self.low <= 0):
            raise ValueError("low must not be above high, and with log it must be above 0")
        if self.log and self.step is not None:
            raise ValueError("log and step exclude each other")
        whole = (self.low, self.high, self.step or 1)
        if self.integer and not all(number.is_integer() for number in map(float, whole)):
            raise ValueError("with integer, low, high and step must be whole")
        return self

    def points(self) -> list[JsonValue]:
        """All of its numbers.

        Raises:
            ValueError: if the range has no step, is logarithmic, or has too many numbers.
        """
        step = self.step or (1 if self.integer else None)
        if step is None or self.log or (self.high - self.low) / step > MOST_TRIALS:
            raise ValueError("a grid needs lists, or ranges with a step and without log")
        number = int((self.high - self.low) / step + 1e-9) + 1
        points = [self.low + index * step for index in range(number)]
        return [int(point) for point in points] if self.integer else list(points)


class Pruner(Config):
    """A rule that stops trials early."""

    name: Literal["median", "halving"] = Field(
        "median",
        description="Stop where the best value so far is below the median of the others at that "
        "step; or successive halving, where only the best of them reach the next level.",
    )
    metric: str = Field(description="The metric that trials are compared by while they run.")
    warmup_steps: int = Field(0, ge=0, description="Steps of a run before it may be stopped.")


class Search(Config):
    """Values that depend on what came of others."""

    space: dict[str, Range | Values] = Field(
        min_length=1, description="Ranges or lists of values by key of the config."
    )
    objective: Objective = Field(description="The number to improve, averaged over seeds.")
    trials: int = Field(ge=1, le=MOST_TRIALS, description="Number of points, each with all seeds.")
    sampler: Literal["tpe", "random", "grid"] = Field(
        "tpe", description="Who chooses points: Optuna's TPE, chance, or one after the other."
    )
    pruner: Pruner | None = Field(None, description="Stops bad trials early; one seed only.")
    seed: int = Field(0, ge=0, description="Seeds the choice of points.")

    @model_validator(mode="after")
    def _grid_has_points(self) -> Search:
        if self.sampler == "grid":
            for values in self.space.values():
                if isinstance(values, Range):
                    values.points()
        return self


class SweepConfig(Config):
    """Everything one sweep needs to know."""

    base: str | dict[str, JsonValue] = Field(
        description="The config of all trials: a file, a world's name, or the config itself."
    )
    name: str | None = Field(
        None, pattern=r"^[\w.+-]{1,100}$", description="Of its folder; default: that of its file."
    )
    sweeps: ConfigOutput = Field(
        default_factory=lambda: Path("sweeps").resolve(), description="Folder of all sweeps."
    )
    over: dict[str, Values] = Field(
        default_factory=dict,
        description="Values by key of the config, all combined; a..b are whole numbers.",
    )
    zip: list[dict[str, JsonValue]] = Field(
        default_factory=list, description="Values that belong together, one mapping for each."
    )
    search: Search | None = Field(None, description="Values to be searched.")
    objective: Objective | None = Field(
        None, description="The number to compare; default: what says most of a run."
    )
    executor: ExecutorRef = Field(
        default_factory=lambda: ExecutorRef.model_validate("local"),
        description="Executor of the trials.",
    )
    workers: int = Field(2, ge=1, le=4096, description="Trials at a time.")
    needs: NeedsParams = Field(
        default_factory=NeedsParams,
        description="Resources of a trial; torch gets as many threads as there are cpus.",
    )
    baseline: dict[str, JsonValue] | None = Field(
        None, description="The values that others are compared with, seed by seed."
    )
    digest: str | None = Field(
        None, description="The sha256 of its trials, written by a sweep; others are refused."
    )

    @model_validator(mode="after")
    def _keys_fit_together(self) -> SweepConfig:
        over, searched = set(self.over), set(self.search.space if self.search else ())
        zipped = {key for row in self.zip for key in row}
        for key in sorted(over & zipped | over & searched | zipped & searched):
            raise ValueError(f"{key!r} is given twice; leave it in one of over, zip and search")
        for key in sorted(over | zipped | searched):
            if key == "runs":
                raise ValueError(
                    "'runs' cannot be swept; 'sweeps' is the folder of all sweeps, and 'name' that "
                    "of this one in it"
                )
            if not all(key.split(".")):
                raise ValueError(f"{key!r} is no key of a config, which would be e.g. a.b")
        if SEED in zipped | searched:
            raise ValueError("'seed' belongs into over, for all values share their seeds")
        if self.search is not None:
            self._check_search(self.search)
        for key, values in self.over.items():
            if not values:
                raise ValueError(f"over.{key} must have values")
            texts = [_text(value) for value in values]
            if twice := [text for text, count in Counter(texts).items() if count > 1]:
                raise ValueError(f"over.{key} has a value twice: {', '.join(twice)} (got {values})")
        return self

    def _check_search(self, search: Search) -> None:
        several = [key for key, values in self.over.items() if len(values) > 1 and key != SEED]
        if self.zip or several:
            names = ", ".join(several) or "zip"
            raise ValueError(f"beside a search only seeds can vary; put {names} into its space")
        if self.objective is not None:
            raise ValueError("the search has its own objective; leave out this one")
        if search.pruner is not None and len(self.over.get(SEED, ())) > 1:
            raise ValueError("a pruner compares trials one by one; give one seed, or no pruner")

    @property
    def goal(self) -> Objective | None:
        """The objective, wherever it is given."""
        return self.objective if self.search is None else self.search.objective

    def swept(self) -> list[str]:
        """The keys that it sets, but for the seed, in the order in which they are set."""
        zipped = dict.fromkeys(key for row in self.zip for key in row)
        searched = self.search.space if self.search else {}
        return [key for key in (*self.over, *zipped, *searched) if key != SEED]
