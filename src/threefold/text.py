"""Text and numbers, made fit to be shown."""

from hashlib import sha256


def no_longer(text: str, most: int) -> str:
    """Text of at most so many characters; a sum stands for what is cut off, so that what differed still does."""
    return text if len(text) <= most else f"{text[: most - 18]}… {sha256(text.encode()).hexdigest()[:16]}"


def decimal(value: float, digits: int = 2) -> str:
    """A number with a true minus sign, and none before zero."""
    text = f"{value:.{digits}f}"
    return text.replace("-", "−" if float(text) else "")


def printable(text: str) -> str:
    """Text without what a terminal would obey: control sequences, and signs that turn the direction of writing."""
    return "".join(c if c.isprintable() or c == "\n" else "\ufffd" for c in text)
