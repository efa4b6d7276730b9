"""The git revision of threefold's own source, which is recorded with every run."""

import os
import subprocess
from hashlib import new as new_hash
from pathlib import Path

GIT = ("git", "-c", "core.fsmonitor=false", "-c", f"core.hooksPath={os.devnull}")
PATIENCE = 10.0  # seconds


def revision(package: Path = Path(__file__).parent) -> str | None:
    """The git revision of threefold's own source if it is a checkout; otherwise the value of THREEFOLD_REVISION.

    Installed inside another repository, threefold is not described by that repository's revision. And git runs
    programs that a repository names (core.fsmonitor, hooks, filters, remote helpers): so only what reads commits is
    asked of it, with those settings off, and whether files were changed is found out here.
    """
    if given := os.environ.get("THREEFOLD_REVISION"):
        return given
    top = next((folder for folder in (package.parent, package.parent.parent) if (folder / ".git").exists()), None)
    if top is None:
        return None
    tracked = _git(top, "ls-tree", "-rz", "--full-tree", "HEAD", package.relative_to(top).as_posix())
    files = {top / path: hashed for path, hashed in map(_entry, filter(None, (tracked or "").split("\0")))}
    name = _git(top, "describe", "--always", "--abbrev=12")
    if package / "__init__.py" not in files or not name:
        return None
    changed = any(_hash_of(path, len(hashed)) != hashed for path, hashed in files.items())
    return f"{name.strip()}-dirty" if changed else name.strip()


def _git(top: Path, *words: str) -> str | None:
    """The output of git for the repository in exactly this folder; None if there is none or git fails."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")} | {
        "GIT_CEILING_DIRECTORIES": str(top.parent),
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_ALLOW_PROTOCOL": "",
    }
    try:
        command = [*GIT, "-C", str(top), *words]
        answer = subprocess.run(command, env=environment, capture_output=True, timeout=PATIENCE)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return os.fsdecode(answer.stdout) if answer.returncode == 0 else None


def _entry(line: str) -> tuple[str, str]:
    """The path and the hash in a line of `git ls-tree`."""
    about, _, path = line.partition("\t")
    return path, about.split()[2]


def _hash_of(path: Path, length: int) -> str | None:
    """Git's hash of a file's content, SHA-1 or SHA-256 by its length; None if the file is missing."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    return new_hash("sha1" if length == 40 else "sha256", b"blob %d\0" % len(content) + content).hexdigest()
