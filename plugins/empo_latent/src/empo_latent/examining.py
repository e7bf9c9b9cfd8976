"""Evaluations in the course of a run: whole episodes, beside the training."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

from torch import Tensor

from empo_core.errors import EmpoError
from empo_latent.environments.fleet import Fleet
from empo_latent.evaluating import Evaluation, evaluate
from empo_latent.filming import film
from empo_latent.learning.updater import Updater
from empo_latent.networks.model import LatentModel
from empo_latent.params import LatentParams
from empo_latent.planning.mppi import Planner

log = logging.getLogger(__name__)
SEED = 1_000_003
"""Added to the run's seed, so that evaluations play other episodes than training."""
