"""Text that came from files, made fit to be shown."""

from hashlib import sha256


def no_longer(text: str, most: int) -> str:
    """Text of at most so many characters; a sum stands for what is cut off, so that what differed still does."""
    return text if len(text) <= most else f"{text[: most - 18]}… {sha256(text.encode()).hexdigest()[:16]}"


def printable(text: str) -> str:
    """Text without what a terminal would obey: control sequences, and signs that turn the direction of writing."""
    return "".join(c if c.isprintable() or c == "\n" else "\ufffd" for c in text)
