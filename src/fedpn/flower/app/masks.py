"""Masks that cannot be guessed, and what a node asks of a server before it helps to take them off.

Flower draws masks from seeds that it folds to 32 bits, which patience finds; here all 256 bits of a
secret count, by AES in counter mode.
"""

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from flwr.common.secure_aggregation.secaggplus_constants import Key
from numpy.typing import NDArray

from fedpn.flower.app.told import Told

MODULUS = 2**32
REACH = 8.0  # a single number moves no further than this in a round


def draw_masks(
    seed: bytes, modulus: int, shapes: Sequence[tuple[int, ...]]
) -> list[NDArray[np.int64]]:
    """Numbers below the modulus, a power of two, that only who has the seed can draw again.

    >>> [mask.shape for mask in draw_masks(b"secret", MODULUS, [(2,), ()])]
    [(2,), ()]
    """
    digest = hashes.Hash(hashes.SHA256())
    digest.update(b"fedpn masks" + seed)
    stream = Cipher(algorithms.AES(digest.finalize()), modes.CTR(bytes(16))).encryptor()
    sizes = [int(np.prod(shape, dtype=np.int64)) for shape in shapes]
    drawn = np.frombuffer(stream.update(bytes(4 * sum(sizes))), "<u4").astype(np.int64) % modulus
    parts = np.split(drawn, np.cumsum(sizes)[:-1]) if sizes else []
    return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]


# Both sides of the protocol must draw the same; Flower offers no other way to say how.
SIDES = (
    "flwr.client.mod.secure_aggregation.secaggplus_mod",
    "flwr.server.workflow.secure_aggregation.secaggplus_workflow",
)
for _side in map(import_module, SIDES):
    assert "pseudo_rand_gen" in vars(_side), f"this Flower draws masks in another way ({_side})"
    vars(_side)["pseudo_rand_gen"] = draw_masks


def check_setup(asked: Mapping[str, Any]) -> None:
    """A mask that fewer than two nodes, or each of two halves of them, can take off is none."""
    names = (Key.THRESHOLD, Key.SHARE_NUMBER, Key.SAMPLE_NUMBER, Key.TARGET_RANGE, Key.MOD_RANGE)
    numbers = [asked.get(name) for name in names]
    if not all(type(number) is int for number in numbers):
        raise Told("the server's terms of masks are no numbers")
    threshold, shares, nodes, levels, modulus = (int(str(number)) for number in numbers)
    if threshold < 2 or 2 * threshold <= shares or threshold > shares or shares != nodes:
        raise Told(f"masks that {threshold} of {shares} nodes can take off protect nobody")
    if modulus != MODULUS or not 0 < levels < modulus or asked.get(Key.CLIPPING_RANGE) != REACH:
        raise Told("the server's terms of masks are not those of fedpn")


def check_unmask(asked: Mapping[str, Any], state: Mapping[str, Any], me: int) -> None:
    """Refuses to help where one node is said to be both here and gone, or where too few are here.

    Of a node that is here, shares of its own mask are told; of one that is gone, shares of the key
    that it shares with others. Both together would bare what it sent.
    """
    here, gone = (list(asked.get(k, [])) for k in (Key.ACTIVE_NODE_ID_LIST, Key.DEAD_NODE_ID_LIST))
    everybody, known = [*here, *gone], set(state.get("rd_seed_share_dict:K", []))
    if not all(type(number) is int for number in everybody):
        raise Told("the server's lists of nodes are none")
    if len(set(everybody)) < len(everybody):
        raise Told("the server says that one node is both here and gone")
    if me not in here or not set(everybody) <= known:
        raise Told("the server's lists name nodes that took no part, or leave this one out")
    if len(here) < int(state["threshold"]):
        raise Told(f"only {len(here)} nodes are here, fewer than the masks were made for")
