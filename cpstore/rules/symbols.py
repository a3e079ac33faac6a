"""Which symbols can be locked, and which of them read alike."""

from __future__ import annotations

import re
import unicodedata

from cpstore.model.names import unseen_character

# The characters with the property Default_Ignorable_Code_Point (Unicode, DerivedCoreProperties) that are not format
# characters or unassigned, which a symbol cannot have anyway: fillers and variation selectors, shown as nothing.
# Toned down by NFKC_Casefold, but not by NFKC and casefold.
_IGNORABLE = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")

_BLANK = {"Cc", "Cf", "Zl", "Zp", "Zs"}
_BRAILLE_BLANK = "\u2800"


def fault(symbol: str) -> str:
    """Say why ``symbol`` cannot stand in a glossary, ``""`` if it can."""
    unseen = unseen_character(symbol)
    if unseen:
        return f"has {unseen}"
    if symbol != symbol.strip():
        return "begins or ends with a blank"
    for character in symbol:
        # Releases of Python with another Unicode version would disagree about its normal form and its case.
        if unicodedata.category(character) == "Cn":
            return f"has an unassigned character (U+{ord(character):04X})"
    if not unicodedata.is_normalized("NFC", symbol):
        return f"is not in Unicode normal form NFC: write {unicodedata.normalize('NFC', symbol)!r}"
    return "" if reading(symbol) else "has no character that can be seen"


def reading(symbol: str) -> str:
    """Return what symbols that read alike have in common: the symbol under NFKC_Casefold (Unicode, section 3.13)."""
    seen = unicodedata.normalize("NFKC", _IGNORABLE.sub("", symbol))
    for _ in range(2):
        seen = unicodedata.normalize("NFKC", seen.casefold())
    return _IGNORABLE.sub("", seen)


def invisible(text: str) -> bool:
    """Whether nothing of a text can be seen: blanks, control and format characters, fillers."""
    return all(unicodedata.category(one) in _BLANK or one == _BRAILLE_BLANK for one in _IGNORABLE.sub("", text))
