"""The version of this package, as installed, and of the numbers that it computes."""

from importlib.metadata import PackageNotFoundError, version

try:
    VERSION = version("threefold")
except PackageNotFoundError:  # run from a source tree that was not installed
    VERSION = "0.0.0"

NUMERICS = 1
"""Part of every run's key. Raise it when a change is meant to alter results, and freeze the rows of tests/learning
anew: runs that were stored before stay, and none is taken for a new one."""
