"""Shows text from files and devices so that it cannot control a terminal or hide itself."""

import re

_JOINED = "\u0590-\u1cff\u2190-\u2bff\ufe0f\U0001f000-\U0001faff"
"""Scripts from Hebrew to Sundanese, and emoji: their spelling uses joiners of width zero."""
_UNSAFE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"  # controls, those of 8 bits too; escape is one
    "|\r(?!\n)"  # back to the start of the line, over the text there
    "|[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"  # change the direction of what follows
    "|[\xad\u180e\u200b\u2060-\u2065\u206a-\u206f\ufeff\ufff9-\ufffb]"  # unseen
    "|[\U000e0000-\U000e007f]"  # a second, unseen ASCII
    "|[\u2028\u2029]"  # end a line
    f"|(?<![{_JOINED}])[\u200c\u200d]|[\u200c\u200d](?![{_JOINED}])"  # joiners of nothing
    "|[\ud800-\udfff]"  # halves of pairs: what is left of bytes that are no text
)
_BREAKS = re.compile("[\t\n\r]")


def visible(text: str) -> str:
    r"""Text of several lines; each unsafe character is written as in JSON: `\u001b`.

    Line ends and tabs stay. JSON keeps its meaning, because its strings can contain such escapes.
    Safe text does not change, in any script.
    """
    return _UNSAFE.sub(_escape, text)


def visible_line(text: str) -> str:
    """A name or a message on one line: line ends and tabs are also written as in JSON."""
    return _BREAKS.sub(_escape, visible(text))


def shortened(text: str, most: int = 80) -> str:
    """Text of at most `most` characters; the omitted part is in its middle."""
    if len(text) <= most:
        return text
    gap = " ... "
    head = (most - len(gap) + 1) // 2
    return text[:head] + gap + text[len(text) - (most - len(gap) - head) :]


def _escape(match: re.Match[str]) -> str:
    encoded = match[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{encoded[at : at + 2].hex()}" for at in range(0, len(encoded), 2))
