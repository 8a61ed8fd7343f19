"""Small word lists: what numbers, units, months and negations are called. Lower case; edit with care, each line is a
promise that two spellings mean the same, or that one word turns an answer around."""

from __future__ import annotations


def _each(words: str) -> list[str]:
    return words.split()


UNITS = {
    word: value
    for value, word in enumerate(
        _each(
            "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
            "seventeen eighteen nineteen"
        )
    )
}
TENS = {
    word: 20 + 10 * i for i, word in enumerate(_each("twenty thirty forty fifty sixty seventy eighty ninety"))
}  # fmt: skip
SCALES = {"thousand": 10**3, "million": 10**6, "billion": 10**9}
ORDINALS = {
    word: 1 + i
    for i, word in enumerate(_each("first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth"))
}
QUANTITIES = frozenset(
    _each(
        "half halves quarter quarters thirds dozen dozens double triple twice once thrice both pair couple few several "
        "many much more most less least fewer all every each any some only single"
    )
)
"""Amounts without figures. They count as numbers."""

MONTHS = {
    name: month
    for month, names in {
        1: "january jan", 2: "february feb", 3: "march mar", 4: "april apr", 5: "may", 6: "june jun", 7: "july jul",
        8: "august aug", 9: "september sep sept", 10: "october oct", 11: "november nov", 12: "december dec",
    }.items()
    for name in _each(names)
}  # fmt: skip

MEASURES = {
    name: _each(names)[0]
    for names in (
        "km kilometer kilometers kilometre kilometres",
        "m meter meters metre metres",
        "cm centimeter centimeters centimetre centimetres",
        "mm millimeter millimeters millimetre millimetres",
        "mi mile miles",
        "ft foot feet",
        "inch inches",
        "kg kilogram kilograms kilo kilos",
        "g gram grams",
        "mg milligram milligrams",
        "lb lbs pound pounds",
        "oz ounce ounces",
        "l liter liters litre litres",
        "ml milliliter milliliters millilitre millilitres",
        "ms millisecond milliseconds",
        "s sec secs seconds",
        "min mins minute minutes",
        "h hr hrs hour hours",
        "day days",
        "week weeks",
        "month months",
        "year years",
        "% percent",
        "kb kilobyte kilobytes",
        "mb megabyte megabytes",
        "gb gigabyte gigabytes",
        "hz hertz",
        "w watt watts",
        "v volt volts",
        "$ dollar dollars usd",
        "€ euro euros eur",
        "£ gbp",
        "° degree degrees",
        "°c celsius",
        "°f fahrenheit",
    )
    for name in _each(names)
}
"""Units after a number, by name. Other units stay words."""

NEGATIONS = frozenset(
    _each(
        "not no never none nobody nothing nowhere neither nor without cannot except unless hardly barely exclude "
        "excluding false wrong incorrect untrue "
        # French, German, Spanish, Italian, Portuguese
        "ne pas jamais sans aucun aucune rien non "
        "nicht kein keine keinen keiner keinem keines nie niemals ohne nein nichts niemand weder "
        "nunca sin ningún ninguna ninguno nada nadie tampoco jamás "
        "senza mai nessun nessuno nessuna niente né "
        "não sem nenhum nenhuma ninguém "
        # Dutch; Swedish, Danish, Norwegian
        "niet geen nooit zonder niets inte ikke ej aldrig utan uden uten ingen inga inget ingenting "
        # Polish, Czech, Romanian, Russian, Ukrainian
        "bez nigdy nikt nic żaden żadna brak není nikdy nikdo fără niciodată nimeni "
        "не нет ни без никогда никто ничего нельзя немає ні "
        # Finnish, Hungarian, Turkish, Greek
        "ei älä ilman koskaan nem nincs soha değil yok hayır δεν μη όχι"
    )
)
"""Other languages' too: a word of theirs that means something else elsewhere is only reported under another name."""

SPELLINGS = {
    "which": "what",
    "are": "be",
    "is": "be",
    "am": "be",
    "does": "do",
    "has": "have",
    "colour": "color",
    "colours": "color",
    "coloured": "colored",
    "grey": "gray",
    "centre": "center",
    "favourite": "favorite",
    "photo": "picture",
    "photos": "picture",
    "photograph": "picture",
    "image": "picture",
    "images": "picture",
    "pic": "picture",
}
"""Words that may stand for each other in any question."""

NO_PLURALS = frozenset(_each("news arms glasses goods customs species series means always perhaps mars james"))
"""Words in s that mean something else without it, or nothing."""

EMPTY = frozenset({"the", "an", "please", "kindly"})
"""Words that no answer hangs on. "a" too, before another word. All else counts: prepositions, pronouns, tenses."""

CONTRACTIONS = {
    "cannot": ("can", "not"),
    "won't": ("will", "not"),
    "can't": ("can", "not"),
    "shan't": ("shall", "not"),
    "ain't": ("be", "not"),
}
BEFORE_IS = frozenset(["what", "who", "where", "when", "how", "why", "that", "it", "there", "here", "he", "she"])
"""After these, 's is "is"; after others it may be a genitive, and stays."""
