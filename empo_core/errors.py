"""Every error the framework raises on purpose."""


class EmpoError(Exception):
    """Base of all framework errors; catch this to catch ours and only ours."""


class ConfigError(EmpoError, ValueError):
    """A config, world file or command-line override cannot be used as written.

    The message has one line per problem, ``file:line:column: key.path: reason``.
    """


class UnknownComponentError(EmpoError, ValueError):
    """The config names a component that no installed plugin provides."""


class DuplicateComponentError(EmpoError):
    """Two plugins provide the same name for the same kind."""


class PluginLoadError(EmpoError):
    """An installed plugin, or a component of it, could not be loaded."""


class IncompatiblePluginError(PluginLoadError):
    """A plugin was written for another version of the plugin API."""


class WorldError(EmpoError, ValueError):
    """A world model was asked for, or returned, something that makes no sense."""


class SolveError(EmpoError):
    """The problem cannot be solved as posed (cycles, no goals, unreachable goals, no memory)."""


class UnsuitableWorldError(SolveError):
    """The world lacks what every algorithm in it needs: a human, goals, roles of all agents."""


class StorageError(EmpoError):
    """A file on disk is missing, damaged, foreign, or could not be written."""


class WorkerError(EmpoError):
    """A worker process failed; the message carries its traceback."""


class CollectError(WorkerError):
    """No actor can collect experience any more; the message carries the last traceback."""


class TrackerError(EmpoError):
    """A tracker raised something; the message names it, its hook and the error."""


class NonFiniteError(EmpoError, ArithmeticError):
    """A loss, gradient, target or weight is infinite or NaN; the message names it."""


REFUSALS = (ConfigError, UnknownComponentError, DuplicateComponentError, UnsuitableWorldError)
"""Errors of what was asked for: exit code 2, and where nothing was run, no run directory."""
