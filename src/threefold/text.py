"""Formats text and numbers for display."""

from hashlib import sha256


def no_longer(text: str, most: int) -> str:
    """Text of at most `most` characters; a checksum replaces what is cut off, so different texts stay different."""
    return text if len(text) <= most else f"{text[: most - 18]}… {sha256(text.encode()).hexdigest()[:16]}"


def decimal(value: float, digits: int = 2) -> str:
    """A number with a true minus sign, but none before zero."""
    text = f"{value:.{digits}f}"
    return text.replace("-", "−" if float(text) else "")


def printable(text: str) -> str:
    """Text without terminal control sequences and characters that change the writing direction."""
    return "".join(c if c.isprintable() or c == "\n" else "\ufffd" for c in text)
