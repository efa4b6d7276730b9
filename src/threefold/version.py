"""The version of this package, as installed."""

from importlib.metadata import PackageNotFoundError, version

try:
    VERSION = version("threefold")
except PackageNotFoundError:  # run from a source tree that was not installed
    VERSION = "0.0.0"
