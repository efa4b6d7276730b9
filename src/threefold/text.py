"""Text that came from files, made fit to be shown."""


def printable(text: str) -> str:
    """Text without what a terminal would obey: control sequences, and signs that turn the direction of writing."""
    return "".join(c if c.isprintable() or c == "\n" else "\ufffd" for c in text)
