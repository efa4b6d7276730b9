"""How much memory this machine has free."""


def available_memory() -> int | None:
    """The available memory in bytes; None if the system does not report it."""
    try:
        with open("/proc/meminfo") as file:
            free = next(line for line in file if line.startswith("MemAvailable"))
        return int(free.split()[1]) * 1024
    except (OSError, StopIteration, ValueError):  # not Linux
        return None


def memory_limit() -> int:
    """The available memory, or 8 GB if it is unknown."""
    return available_memory() or 8 << 30


def in_bytes(number: int) -> str:
    """A number of bytes in short form: 21 GB."""
    units = ("bytes", "kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB")
    power = min(len(units) - 1, (len(str(number)) - 1) // 3)
    value = number / 1000**power
    return f"{value:,.0f} {units[power]}" if value >= 10 or not power else f"{value:.1f} {units[power]}"
