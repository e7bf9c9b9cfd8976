"""Robots of the benchmark that learn from experience, rebuilt from their published equations.

Both learn action values of an intrinsic reward, which knows nothing of the goal:

* *AvE learned* (assistance via empowerment, Du et al. 2020): the logarithm of the variance of the
  places that rollouts of random human actions reach among boxes that stay.
* *contrastive* (after Myers et al. 2024, arXiv 2411.02623): how much better the human's action
  tells the future than the robot's alone, (phi(s, a_r, a_h) - phi(s, a_r)) psi(s'), where features
  are learned by telling apart futures of the same step from those of others (InfoNCE).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
import torch
from esr_settings import Learning, Settings
from simulator import (
    MOVES,
    STAY,
    Episodes,
    Robot,
    holds_box,
    human_choice,
    started,
    stepped,
    target_cells,
)
from torch import Tensor, nn
from torch.nn import functional

HUMAN_ACTIONS = len(MOVES)
UNKNOWN = HUMAN_ACTIONS
"""Index of the human's action where it is not told."""


@dataclass(frozen=True)
class Batch:
    """Episodes that were played at once; the last state has no actions."""

    human: np.ndarray  # [step, episode]
    boxes: np.ndarray  # [step, episode, row, column]
    robot_action: np.ndarray  # [step, episode], index of the Q network
    human_action: np.ndarray  # [step, episode]
    reward: np.ndarray  # [step, episode]; 0 where features give the reward


class Trunk(nn.Module):
    """Two convolutions over the board, then a hidden layer that also reads actions."""

    def __init__(self, size: int, outputs: int, actions: int = 0) -> None:
        super().__init__()
        self.picture = nn.Sequential(
            nn.Conv2d(2, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU()
        )
        self.hidden = nn.Linear(32 * size**2 + actions, 100)
        self.output = nn.Linear(100, outputs)

    def forward(self, board: Tensor) -> Tensor:
        """Outputs of each board, which come without actions [board, output]."""
        return self.outputs_of(self.read(board))

    def read(self, board: Tensor) -> Tensor:
        """What the convolutions make of each board [board, number]."""
        return self.picture(board).flatten(1)

    def outputs_of(self, numbers: Tensor) -> Tensor:
        """Outputs from what was read of boards, and from actions behind it [board, output]."""
        return self.output(functional.relu(self.hidden(numbers)))


class SoftQ:
    """Action values and a softmax policy over the moves of boxes, and doing nothing.

    Outputs are cell times direction, and last *still*; cells without a box are never chosen. The
    inverse temperature is steered so that the policy keeps a mean entropy, in nats.
    """

    def __init__(self, size: int, settings: Learning) -> None:
        self._settings, self._size = settings, size
        self.actions = size**2 * STAY + 1
        self.q, self._target = Trunk(size, self.actions), Trunk(size, self.actions)
        self._target.load_state_dict(self.q.state_dict())
        self._log_beta = torch.zeros((), requires_grad=True)
        self._optimiser = torch.optim.Adam(self.q.parameters(), settings.q_lr)
        self._beta_optimiser = torch.optim.Adam([self._log_beta], settings.q_lr)

    def policy(self, board: Tensor) -> Tensor:
        """Probabilities of the actions [board, action]."""
        with torch.no_grad():
            return self._softmax(self.q(board), board).exp()

    def update(self, board: Tensor, action: Tensor, reward: Tensor, after: Tensor) -> None:
        """One step towards one-step targets under the policy."""
        with torch.no_grad():
            policy, worth = self.policy(after), self._target(after)
            target = reward + self._settings.discount * (policy * worth).sum(1)
        values = self.q(board)
        loss = (values.gather(1, action[:, None])[:, 0] - target).square().mean()
        self._optimiser.zero_grad()
        loss.backward()
        self._optimiser.step()
        with torch.no_grad():
            for old, new in zip(self._target.parameters(), self.q.parameters(), strict=True):
                old.lerp_(new, self._settings.target_rate)
        self._steer(values.detach(), board)

    def _softmax(self, values: Tensor, board: Tensor) -> Tensor:
        """Log probabilities; minus infinity for cells without a box."""
        boxes = board[:, 1].flatten(1).repeat_interleave(STAY, 1) > 0
        may = torch.cat([boxes, boxes.new_ones(len(boxes), 1)], 1)
        scaled = values * self._log_beta.exp().clamp(1e-3, 100)
        return scaled.masked_fill(~may, -torch.inf).log_softmax(1)

    def _steer(self, values: Tensor, board: Tensor) -> None:
        log = self._softmax(values, board)
        entropy = -(log.exp() * log.clamp(min=-100)).sum(1).mean()
        self._beta_optimiser.zero_grad()
        (entropy - self._settings.entropy).square().backward()
        self._beta_optimiser.step()


class Contrast:
    """Features of steps and of futures whose inner products tell which belong together."""

    def __init__(self, size: int, settings: Learning, features: int = 32) -> None:
        self._robot_actions, self._scale = size**2 * STAY + 1, features
        self._unit = features if settings.reward_unit == "logit" else 1
        self._step = Trunk(size, features, self._robot_actions + HUMAN_ACTIONS + 1)
        self._future = Trunk(size, features)
        weights = [*self._step.parameters(), *self._future.parameters()]
        self._optimiser = torch.optim.Adam(weights, settings.feature_lr)

    def rewards(
        self, board: Tensor, robot_action: Tensor, human_action: Tensor, future: Tensor
    ) -> Tensor:
        """One step of learning; how much the human's actions tell of these futures [step]."""
        own = functional.one_hot(robot_action, self._robot_actions).float()
        told = torch.stack([human_action, torch.full_like(human_action, UNKNOWN)])
        human = functional.one_hot(told, HUMAN_ACTIONS + 1).float()
        read = self._step.read(board)  # The same whether the human's action is told or not.
        with_human, without = (
            self._step.outputs_of(torch.cat([read, own, action], 1)) for action in human
        )
        reached = self._future(future)
        loss = self._loss(with_human, reached) + self._loss(without, reached)
        self._optimiser.zero_grad()
        loss.backward()
        self._optimiser.step()
        return ((with_human - without) * reached).sum(1).detach() / self._unit

    def _loss(self, step: Tensor, future: Tensor) -> Tensor:
        """InfoNCE in both directions: which future follows the step, which step led there."""
        scores, own = step @ future.T / self._scale, torch.arange(len(step))
        return functional.cross_entropy(scores, own) + functional.cross_entropy(scores.T, own)


@dataclass(frozen=True)
class Course:
    """What a robot learns, and from what.

    Attributes:
        kind: AvE, AvE clipped, or a contrastive one, which has a number of features.
        settings: Of the benchmark.
        boxes: Number of boxes.
        learning: How it learns.
    """

    kind: str
    settings: Settings
    boxes: int
    learning: Learning

    def robot(self, steps: int, seed: int) -> SoftQ:
        """A robot that learned from so many steps of the environment."""
        torch.manual_seed(seed)
        learning, size, length = self.learning, self.settings.size, self.settings.steps
        rng, robot = np.random.default_rng(seed), SoftQ(size, learning)
        features = learning.features.get(self.kind)
        contrast = None if features is None else Contrast(size, learning, features)
        kept: deque[Batch] = deque(maxlen=learning.kept_batches)
        for _ in range(steps // (learning.environments * length)):
            kept.append(self.collected(robot, rng))
            for _ in range(length):
                _update(kept, robot, contrast, learning, rng)
        return robot

    def collected(self, robot: SoftQ, rng: np.random.Generator) -> Batch:
        """Episodes with the benchmark's human, from all starts and corners."""
        settings, count = self.settings, self.learning.environments
        seeds = rng.integers(2**62, size=count)
        kinds = zip(settings.starts, np.array_split(seeds, len(settings.starts)), strict=True)
        parts = [
            started(start, None, settings.size, self.boxes, settings.steps, part)
            for start, part in kinds
        ]
        fields = zip(*(vars(part).values() for part in parts), strict=True)
        begun = Episodes(*map(np.concatenate, fields))
        human, grid = begun.human, begun.boxes
        played: list[tuple[np.ndarray, ...]] = []
        for step in range(settings.steps):
            before = human, grid
            chosen = torch.multinomial(robot.policy(boards(human, grid)), 1)[:, 0].numpy()
            choice = human_choice(human, grid, begun.goal)
            move = np.where(begun.is_noise[:, step], begun.noise_action[:, step], choice)
            move = np.where((human == begun.goal) | holds_box(human, grid), STAY, move)
            pushed = pushes(chosen, settings.size)
            human, grid = stepped(human, grid, begun.goal, move, *pushed)
            played.append((*before, chosen, move, self._reward(human, grid, rng)))
        humans, grids, *others = (list(part) for part in zip(*played, strict=True))
        return Batch(*map(np.stack, ([*humans, human], [*grids, grid], *others)))

    def _reward(self, human: np.ndarray, boxes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Reward of coming to be in a state, where features do not give it [episode]."""
        if self.kind in self.learning.features:
            return np.zeros(len(human))
        return variance(human, boxes, self.learning, rng, is_clipped=self.kind == "AvE clipped")


def _update(
    kept: deque[Batch],
    robot: SoftQ,
    contrast: Contrast | None,
    learning: Learning,
    rng: np.random.Generator,
) -> None:
    batch, size = kept[rng.integers(len(kept))], learning.batch_size
    length, episodes = batch.reward.shape
    step, episode = rng.integers(length, size=size), rng.integers(episodes, size=size)
    board = boards(batch.human[step, episode], batch.boxes[step, episode])
    after = boards(batch.human[step + 1, episode], batch.boxes[step + 1, episode])
    action = torch.from_numpy(batch.robot_action[step, episode])
    reward = torch.from_numpy(batch.reward[step, episode]).float()
    if contrast is not None:
        # How many steps ahead: geometric, cut at the end of the episode.
        then = np.minimum(step + rng.geometric(1 - learning.discount, size=size), length)
        future = boards(batch.human[then, episode], batch.boxes[then, episode])
        human = torch.from_numpy(batch.human_action[step, episode])
        reward = contrast.rewards(board, action, human, future)
    robot.update(board, action, reward, after)


def variance(
    human: np.ndarray,
    boxes: np.ndarray,
    learning: Learning,
    rng: np.random.Generator,
    *,
    is_clipped: bool,
) -> np.ndarray:
    """Log variance of the places that random human actions lead to [episode].

    ``is_clipped`` draws them from as many as the robot has, cut to the human's: nearly all stay.
    """
    size, rollouts = boxes.shape[1], learning.rollouts
    cell, grid = np.repeat(human, rollouts), np.repeat(boxes, rollouts, 0)
    number = HUMAN_ACTIONS * (size**2 if is_clipped else 1)
    for _ in range(learning.rollout_steps):
        action = rng.integers(number, size=len(cell)).clip(max=STAY)
        cell = np.where(holds_box(cell, grid), cell, target_cells(cell, action, grid))
    places = np.stack(np.divmod(cell.reshape(-1, rollouts), size))
    return np.log(places.var(2).mean(0) + learning.variance_floor)


def boards(human: np.ndarray, boxes: np.ndarray) -> Tensor:
    """The human and the boxes, one picture each [board, 2, row, column]."""
    picture = np.zeros((len(human), 2, *boxes.shape[1:]), np.float32)
    picture[np.arange(len(human)), 0, human // boxes.shape[1], human % boxes.shape[1]] = 1
    picture[:, 1] = boxes
    return torch.from_numpy(picture)


def pushes(action: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Cell and direction of outputs of the Q network."""
    still = action == size**2 * STAY
    return np.where(still, 0, action // STAY), np.where(still, STAY, action % STAY)


def robot_of(learner: SoftQ, size: int, chance: np.ndarray) -> Robot:
    """It draws from the learned policy; ``chance`` has a number per episode and step."""

    def robot(human: np.ndarray, boxes: np.ndarray, step: int) -> tuple[np.ndarray, np.ndarray]:
        policy = learner.policy(boards(human, boxes)).double().numpy()
        action = (policy.cumsum(1) < chance[:, step, None]).sum(1)
        return pushes(action.clip(max=policy.shape[1] - 1), size)

    return robot
