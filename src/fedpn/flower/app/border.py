"""What nodes answer in the protocol of masks, looked at before Flower's own code uses it."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from flwr.app import Message
from flwr.common import bytes_to_ndarray
from flwr.common.secure_aggregation.secaggplus_constants import RECORD_KEY_CONFIGS, Key, Stage
from flwr.compat.common.recorddict_compat import recorddict_to_fitres
from flwr.supercore.primitives.asymmetric import bytes_to_public_key

from fedpn.federated.plausible import ABSURD
from fedpn.flower.app.masks import MODULUS
from fedpn.flower.app.post import Post

Refuse = Callable[[int, str], None]
Form = tuple[tuple[int, ...], ...]


class Border(Post):
    """Passes on what can be; who answers anything else is as if it had vanished."""

    def __init__(self, post: Post, refuse: Refuse) -> None:
        super().__init__(post.grid)
        self.post, self.refuse = post, refuse

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> list[Message]:
        asked = list(messages)
        stage = str(asked[0].content.config_records[RECORD_KEY_CONFIGS][Key.STAGE]) if asked else ""
        numbers = {message.metadata.dst_node_id for message in asked}
        good: dict[int, Message] = {}
        for reply in self.post.exchange(asked, timeout):
            node = reply.metadata.src_node_id
            if node not in numbers or node in good:
                continue
            if reply.has_error():
                self.refuse(node, str(reply.error.reason or reply.error.code)[:200])
                continue
            try:
                CHECKS[stage](reply, numbers)
                good[node] = reply
            except Exception as error:  # whatever it is made of, it is not what was asked for
                self.refuse(node, f"{type(error).__name__}: {error}"[:200])
        if stage == Stage.COLLECT_MASKED_VECTORS:
            self._hold_to_most(good)
        return list(good.values())

    def _hold_to_most(self, good: dict[int, Message]) -> None:
        """Vectors of another form than those of most cannot be added to them."""
        forms = {node: _form(reply) for node, reply in good.items()}
        if forms:
            (most, _), *_ = Counter(forms.values()).most_common(1)
            for node, form in forms.items():
                if form != most:
                    del good[node]
                    self.refuse(node, "its vectors have another form than the others'")


def _told(reply: Message) -> Mapping[str, Any]:
    return reply.content.config_records[RECORD_KEY_CONFIGS]


def _vectors(reply: Message) -> list[Any]:
    return [bytes_to_ndarray(part) for part in _told(reply)[Key.MASKED_PARAMETERS]]


def _form(reply: Message) -> tuple[Form, str]:
    said = recorddict_to_fitres(reply.content, True).metrics.get("form", "")
    return tuple(vector.shape for vector in _vectors(reply)), str(said)


def _keys(reply: Message, nodes: set[int]) -> None:
    told = _told(reply)
    for name in (Key.PUBLIC_KEY_1, Key.PUBLIC_KEY_2):
        bytes_to_public_key(told[name])


def _shares(reply: Message, nodes: set[int]) -> None:
    to, texts = _told(reply)[Key.DESTINATION_LIST], _told(reply)[Key.CIPHERTEXT_LIST]
    others = nodes - {reply.metadata.src_node_id}
    # With one share less, a node could not take part in what others mask.
    _require(len(to) == len(others) and set(to) == others, "its shares are not one for each node")
    _require(
        len(texts) == len(to) and all(type(text) is bytes for text in texts), "its shares are none"
    )


def _masked(reply: Message, nodes: set[int]) -> None:
    vectors = _vectors(reply)
    sound = vectors and all(np.issubdtype(v.dtype, np.integer) for v in vectors)
    _require(bool(sound), "its vectors are no whole numbers")
    _require(all((v >= 0).all() and (v < MODULUS).all() for v in vectors), "its vectors are beyond")
    metrics = recorddict_to_fitres(reply.content, True).metrics
    _require(abs(float(metrics["loss"])) < ABSURD, "its loss is none")
    if "form" in metrics:
        json.loads(str(metrics["form"]))


def _opened(reply: Message, nodes: set[int]) -> None:
    owners, shares = _told(reply)[Key.NODE_ID_LIST], _told(reply)[Key.SHARE_LIST]
    _require(len(owners) == len(shares) == len(set(owners)), "its shares are of one node twice")
    _require(
        all(type(share) is bytes and len(share) > 4 for share in shares), "its shares are none"
    )


def _require(sound: bool, why: str) -> None:
    if not sound:
        raise ValueError(why)


CHECKS: dict[str, Callable[[Message, set[int]], None]] = {
    Stage.SETUP: _keys,
    Stage.SHARE_KEYS: _shares,
    Stage.COLLECT_MASKED_VECTORS: _masked,
    Stage.UNMASK: _opened,
}
