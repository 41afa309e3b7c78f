"""Bytes that are almost right: valid encodings with a few wounds, at the places where a format has its joints."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from random import Random

LONGEST = 1 << 14
"""No input is longer: what is quick for these is quick for longer ones too, since the time may only grow with them."""
_DEEP = 1200
_MOST_JOINTS = 200
"""So many are looked for: a choice among these is choice enough."""

_HUGE_HEADERS = (
    b"\xc6\xff\xff\xff\xff", b"\xdb\xff\xff\xff\xff", b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff",
    b"\xc9\xff\xff\xff\xff\x00", b"\xdd\x7f\xff\xff\xff", b"\xdf\x00\x0f\xff\xff", b"\xdc\xff\xff", b"\xde\xff\xff",
)  # fmt: skip
_ITEMS = (
    b"\xc0", b"\xc1", b"\xc2", b"\xc3", b"\x00", b"\x01", b"\x7f", b"\xff", b"\xe0", b"\xcc\xff", b"\xd0\x80",
    b"\xcf" + b"\xff" * 8, b"\xcf\x80" + bytes(7), b"\xd3\x80" + bytes(7), b"\xd3" + b"\xff" * 8,
    b"\xcb" + struct.pack(">d", float("nan")), b"\xcb" + struct.pack(">d", float("inf")), b"\xca\xff\xc0\x00\x00",
    b"\xcb" + struct.pack(">d", 1e308), b"\xcb" + struct.pack(">d", -0.0), b"\xcb" + struct.pack(">d", 2.0**63),
    b"\xa0", b"\xa1\x00", b"\xa2\xff\xfe", b"\xa3\xed\xa0\x80", b"\xa4\xf4\x90\x80\x80", b"\xa1\n", b"\xa3../",
    b"\xa2..", b"\xa1~", b"\xa1*", b"\xa1>", b"\xa3\xe2\x80\xae", b"\xd9\xff" + b"x" * 255,
    b"\xda\x10\x00" + b"y" * 4096,
    b"\xc4\x00", b"\xc4\x01\xff", b"\xc5\x10\x00" + bytes(4096), b"\x90", b"\x80", b"\x91\xc0", b"\x81\xc0\xc0",
    b"\x82\xa1a\x01\xa1a\x02", b"\x81\x90\x01", b"\x81\xcb\x7f\xf8" + bytes(6) + b"\x01", b"\xd4\x05\x00",
    b"\xd6\xff\x00\x00\x00\x00", b"\xd7\xff" + b"\xff" * 8, b"\xc7\x0c\xff" + b"\xff" * 12, b"\xc7\x00\x07",
    b"\xc7\xff\x01" + bytes(255), b"\x91" * _DEEP + b"\xc0", b"\x81\xc0" * _DEEP + b"\xc0", b"\x91" * 40 + b"\xc0",
    b"\xdc\x10\x00" + b"\xc0" * 4096, b"\xdd\x00\x00\x00\x00", *_HUGE_HEADERS,
)  # fmt: skip
"""Values, and beginnings of values, that no field expects: other types, ends of ranges, no text, depth, false sizes."""

_WORDS = (
    b"nan", b"-inf", b"1e999", b"1e-999", b"-1", b"0", b"1.5", b"18446744073709551616", b"-9223372036854775809",
    b"9" * 5000, b"-" + b"9" * 4400, b"0x" + b"f" * 5000, b"1" + b"0" * 400 + b".5", b"true", b"null", b'""', b'"x"',
    b"[]", b"{}", b"[[]]", b"[" * _DEEP, b"{a=" * _DEEP, b'{"a":' * _DEEP, b"[" * 60 + b"]" * 60,
    b"a." * _DEEP + b"b", b"0000-00-00", b"1979-05-27T07:32:00Z", b"9999-12-31T23:59:59.999999+23:59", b"07:32:60",
    b'"\\u0000"', b'"\\ud800"', b'"\\udc00\\ud800"', b'"\\U00110000"', b'"\xff\xfe"', b'"\xed\xa0\x80"', b"\x00",
    b"\xef\xbb\xbf", b'"""', b"'''", b'"\x1b[31m"', b'"../.."', b'"a/b"', b'"~1"', b'"' + b"x" * 5000 + b'"', b"\r",
    b"# \x7f", b"=", b"[[broker]]", b"[broker]", b"[a.b.c]", b",", b";", b'"1"', b"[1, 2]", b'["a", 1]', b"{a = 1}",
    "\u0663".encode(), "\u00b2".encode(), b"\xc2\x85", b"\xe2\x80\xa8",
)  # fmt: skip
"""What may stand in a text file where something else is expected."""

_VALUE = re.compile(rb'"[^"\n]*"|[-+]?[0-9][0-9a-zA-Z_.:+-]*|true|false|\[[^\[\]\n]*\]')

Wound = Callable[[bytes, Sequence[bytes], Random], bytes]


def wounded(data: bytes, others: Sequence[bytes], chance: Random, *, text: bool) -> bytes:
    """`data` with one to a few changes; parts of `others` may come in."""
    for _ in range(chance.choice((1, 1, 1, 2, 3, 7))):
        data = chance.choice(_TEXT if text else _BINARY)(data, others, chance)[:LONGEST]
    return data


@lru_cache(1 << 12)
def joints(data: bytes) -> list[tuple[int, int]]:
    """Where the msgpack values in `data` lie, those inside of others too; as many as can be read."""
    found: list[tuple[int, int]] = []
    open_: list[list[int]] = []
    place = 0
    while place < len(data) and len(found) < _MOST_JOINTS:
        head, size, inside = _header(data, place)
        end = place + head + size
        if end > len(data) or inside > len(data):
            break
        if inside:
            open_.append([len(found), inside])
            found.append((place, -1))
        else:
            found.append((place, end))
            while open_:
                open_[-1][1] -= 1
                if open_[-1][1]:
                    break
                index, _ = open_.pop()
                found[index] = (found[index][0], end)
        place = end
    return [(start, end) for start, end in found if end >= 0]


_SIZES = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
_EXT_SIZES = {0xC7: 1, 0xC8: 2, 0xC9: 4}
_FIXED = {
    0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8, 0xD4: 2, 0xD5: 3,
    0xD6: 5, 0xD7: 9, 0xD8: 17,
}  # fmt: skip
_COUNTS = {0xDC: (2, 1), 0xDD: (4, 1), 0xDE: (2, 2), 0xDF: (4, 2)}


def _header(data: bytes, place: int) -> tuple[int, int, int]:
    """Bytes of the header, bytes of its own behind it, and how many values it contains."""
    first = data[place]
    if first in _SIZES:
        width = _SIZES[first]
        return 1 + width, int.from_bytes(data[place + 1 : place + 1 + width]), 0
    if first in _EXT_SIZES:
        width = _EXT_SIZES[first]
        return 2 + width, int.from_bytes(data[place + 1 : place + 1 + width]), 0
    if first in _COUNTS:
        width, each = _COUNTS[first]
        return 1 + width, 0, each * int.from_bytes(data[place + 1 : place + 1 + width])
    if 0x80 <= first <= 0x9F:
        return 1, 0, (first & 15) * (1 if first >= 0x90 else 2)
    return 1, (first & 31) if 0xA0 <= first <= 0xBF else _FIXED.get(first, 0), 0


def _place(data: bytes, chance: Random) -> int:
    return chance.randrange(len(data) + 1)


def _part(data: bytes, chance: Random, longest: int = 64) -> tuple[int, int]:
    start = _place(data, chance)
    return start, min(len(data), start + chance.randrange(1, longest))


def _flip(data: bytes, _: Sequence[bytes], chance: Random) -> bytes:
    if not data:
        return b"\x00"
    place = chance.randrange(len(data))
    return data[:place] + bytes([data[place] ^ (1 << chance.randrange(8))]) + data[place + 1 :]


def _set(data: bytes, _: Sequence[bytes], chance: Random) -> bytes:
    place = _place(data, chance)
    return data[:place] + bytes([chance.choice((0, 0x7F, 0x80, 0xFF, chance.randrange(256)))]) + data[place + 1 :]


def _insert(data: bytes, _: Sequence[bytes], chance: Random) -> bytes:
    place = _place(data, chance)
    return data[:place] + chance.randbytes(chance.randrange(1, 9)) + data[place:]


def _delete(data: bytes, _: Sequence[bytes], chance: Random) -> bytes:
    start, end = _part(data, chance)
    return data[:start] + data[end:]


def _double(data: bytes, _: Sequence[bytes], chance: Random) -> bytes:
    start, end = _part(data, chance)
    return data[:end] + data[start:end] * chance.choice((1, 1, 2, 50)) + data[end:]


def _cut(data: bytes, _: Sequence[bytes], chance: Random) -> bytes:
    return data[: _place(data, chance)]


def _splice(data: bytes, others: Sequence[bytes], chance: Random) -> bytes:
    other = chance.choice(others)
    return data[: _place(data, chance)] + other[_place(other, chance) :]


def _other_header(data: bytes, _: Sequence[bytes], chance: Random) -> bytes:
    places = joints(data)
    if not places:
        return bytes([chance.randrange(256)]) + data[1:]
    start, _end = chance.choice(places)
    header = _header(data, start)[0]
    return data[:start] + chance.choice((*_HUGE_HEADERS, bytes([chance.randrange(256)]))) + data[start + header :]


def _other_value(data: bytes, _: Sequence[bytes], chance: Random) -> bytes:
    start, end = chance.choice(joints(data) or [(0, len(data))])
    return data[:start] + chance.choice(_ITEMS) + data[end:]


def _like_value(data: bytes, others: Sequence[bytes], chance: Random) -> bytes:
    """Another value of the same kind, so that the types are right and only the sense is wrong."""
    start, end = chance.choice(joints(data) or [(0, len(data))])
    kind = _kind(data[start : start + 1])
    other = chance.choice(others)
    alike = [other[first:last] for first, last in joints(other) if _kind(other[first : first + 1]) == kind]
    return (
        data[:start] + chance.choice([*alike, *(item for item in _ITEMS if _kind(item) == kind)] or _ITEMS) + data[end:]
    )


def _inside(data: bytes, others: Sequence[bytes], chance: Random) -> bytes:
    """Wounds inside of bytes that are an encoding themselves; the length in front of them is right again afterwards."""
    places = [(start, end) for start, end in joints(data) if 0xC4 <= data[start] <= 0xC6]
    if not places:
        return _like_value(data, others, chance)
    start, end = chance.choice(places)
    inner = data[start + _header(data, start)[0] : end]
    inner = chance.choice((*_ANY, _other_value, _like_value))(inner, others, chance)
    return data[:start] + b"\xc6" + len(inner).to_bytes(4) + inner + data[end:]


def _kind(value: bytes) -> str:
    """Of what kind the value is that begins so."""
    first = value[0] if value else 0xC1
    if first < 0x80 or first >= 0xE0 or 0xCC <= first <= 0xD3:
        return "int"
    if 0xA0 <= first <= 0xBF or first in (0xD9, 0xDA, 0xDB):
        return "str"
    if first >> 4 in (8, 9) or first in _COUNTS:
        return "map" if first >> 4 == 8 or first in (0xDE, 0xDF) else "array"
    return {0xC4: "bin", 0xC5: "bin", 0xC6: "bin", 0xCA: "float", 0xCB: "float"}.get(first, "other")


def _foreign_value(data: bytes, others: Sequence[bytes], chance: Random) -> bytes:
    other = chance.choice(others)
    start, end = chance.choice(joints(data) or [(0, len(data))])
    first, last = chance.choice(joints(other) or [(0, len(other))])
    return data[:start] + other[first:last] + data[end:]


def _other_word(data: bytes, others: Sequence[bytes], chance: Random) -> bytes:
    places = [match.span() for match in _VALUE.finditer(data)]
    start, end = chance.choice(places) if places else _part(data, chance)
    if chance.random() < 0.3:
        words = _VALUE.findall(chance.choice(others))
        if words:
            return data[:start] + chance.choice(words) + data[end:]
    return data[:start] + chance.choice(_WORDS) + data[end:]


def _word(data: bytes, _: Sequence[bytes], chance: Random) -> bytes:
    place = _place(data, chance)
    return data[:place] + chance.choice(_WORDS) + data[place:]


def _lines(data: bytes, others: Sequence[bytes], chance: Random) -> bytes:
    """Some lines go, come twice, change places or come from another file."""
    lines = data.split(b"\n")
    one, two = chance.randrange(len(lines)), chance.randrange(len(lines))
    match chance.randrange(4):
        case 0:
            del lines[one]
        case 1:
            lines.insert(two, lines[one])
        case 2:
            lines[one], lines[two] = lines[two], lines[one]
        case _:
            lines.insert(two, chance.choice(chance.choice(others).split(b"\n")))
    return b"\n".join(lines)


_ANY: tuple[Wound, ...] = (_flip, _set, _insert, _delete, _double, _cut, _splice)
_BINARY: tuple[Wound, ...] = (
    *_ANY, *(_other_value,) * 4, *(_other_header,) * 2, *(_foreign_value,) * 2, *(_like_value,) * 8, *(_inside,) * 4,
)  # fmt: skip
_TEXT: tuple[Wound, ...] = (*_ANY, *(_other_word,) * 6, *(_word,) * 2, *(_lines,) * 4)
