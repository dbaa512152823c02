"""Valid bytes -> bytes with a few things wrong: flips, cuts, insertions, repeats, other heads."""

from functools import reduce

from hypothesis import strategies as st

EDGE = 64  # bytes at either end, where formats keep what matters most
NUMBERS = (0, 1, 2**7, 2**8 - 1, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1)
HEADS = (
    b"PK\x03\x04",
    b"\x1f\x8b\x08\x00",
    b"\x89PNG\r\n\x1a\n",
    b"\xff\xd8\xff\xe0",
    b"GIF89a",
    b"II*\x00",
    b"BM",
    b"RIFF\x20\x00\x00\x00WEBP",
    b"P5\n",
    b"PAR1",
    b"\x93NUMPY\x01\x00",
    b"MATLAB 5.0",
    b"\x89HDF",
    b"BZh9",
    b"\xfd7zXZ\x00",
    b"\xef\xbb\xbf",
    b"\xff\xfe",
    b"%!PS",
    b"\x80\x04",
    b"",
)


def mutated(whole):
    """Bytes that were whole before one change, or before several."""
    change = _changes(len(whole))
    changes = st.one_of(st.tuples(change), st.lists(change, min_size=2, max_size=6))
    return changes.map(lambda found: reduce(lambda content, change: change(content), found, whole))


def _changes(length):
    last = max(length - 1, 0)
    place = st.one_of(
        st.integers(0, min(EDGE, last)),
        st.integers(0, last),
        st.integers(max(last - EDGE, 0), last),
    )
    size = st.one_of(st.integers(1, 8), st.integers(1, max(length, 1)))
    number = st.tuples(
        st.sampled_from(NUMBERS), st.sampled_from([1, 2, 4, 8]), st.sampled_from(["little", "big"])
    )
    return st.one_of(
        st.builds(flip, place, st.integers(0, 7)),
        st.builds(put, place, st.binary(min_size=1, max_size=4)),
        st.builds(put, place, number.map(_in_bytes)),
        st.builds(insert, place, st.binary(min_size=1, max_size=16)),
        st.builds(cut, place),
        st.builds(drop, place, size),
        st.builds(repeat, place, size, st.integers(2, 9)),
        st.builds(move, place, place, size),
        st.builds(put, st.just(0), st.sampled_from(HEADS)),
    )


def _in_bytes(number):
    value, size, order = number
    return (value % 256**size).to_bytes(size, order)


def flip(place, bit):
    """One bit is another."""

    def change(content):
        if not content:
            return content
        at = place % len(content)
        return content[:at] + bytes([content[at] ^ (1 << bit)]) + content[at + 1 :]

    return change


def put(place, bytes_):
    """Some bytes stand where others stood."""
    return lambda content: content[:place] + bytes_ + content[place + len(bytes_) :]


def insert(place, bytes_):
    """Some bytes come in between."""
    return lambda content: content[:place] + bytes_ + content[place:]


def cut(place):
    """The end is missing."""
    return lambda content: content[:place]


def drop(place, size):
    """A block is missing."""
    return lambda content: content[:place] + content[place + size :]


def repeat(place, size, times):
    """A block comes again and again."""
    return lambda content: (
        content[:place] + content[place : place + size] * times + content[place + size :]
    )


def move(place, other, size):
    """A block stands where another stood."""
    return lambda content: content[:place] + content[other : other + size] + content[place + size :]
