"""What a page of HTML holds, as far as the tests ask."""

import re
from html.parser import HTMLParser

VOID = {"meta", "br", "img", "hr", "link", "input"}
ACTIVE = ("script", "iframe", "object", "embed", "link", "base", "form")
FETCHING = ("src", "href", "srcset", "data", "poster", "action", "background", "xlink:href", "style")


class Page(HTMLParser):
    """Elements, texts, names and links; complains about elements that are not closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert not self._open, f"not closed: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self._open, f"</{tag}> closes nothing"
        assert self._open.pop() == tag, f"</{tag}> closes something else"

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def count(self, tag: str, kind: str = "") -> int:
        return sum(
            name == tag and (not kind or kind in attrs.get("class", "").split()) for name, attrs in self.elements
        )

    @property
    def ids(self) -> list[str]:
        return [attrs["id"] for _, attrs in self.elements if "id" in attrs]

    @property
    def links(self) -> list[str]:
        return [attrs["href"] for tag, attrs in self.elements if tag == "a"]

    def outside(self) -> list[str]:
        """Addresses that a browser would fetch, or be sent to, outside of the page."""
        found = []
        for tag, attrs in self.elements:
            for name, value in attrs.items():
                inside = value.startswith(("#", "data:image/png;base64,"))
                if name in FETCHING and not inside and (name != "style" or "url(" in value):
                    found.append(f"{tag} {name}={value}")
                if name.startswith("on"):
                    found.append(f"{tag} {name}={value}")
        found += [
            tag for tag, _ in self.elements if tag in ("script", "iframe", "object", "embed", "link", "base", "form")
        ]
        style = "".join(self.texts) if self.count("style") else ""
        return found + re.findall(r"@import[^;]*|url\([^)]*\)", style)
