"""Noise that a node adds itself: whoever gets its uploads learns little of all its rows."""

from fedpn.core.errors import UserError
from fedpn.core.noise import keyed, normal
from fedpn.core.trees import Slots, is_wide
from fedpn.federated.aggregation import norms


def noised(sent: Slots, upload: Slots, clip: float, noise: float, key: bytes) -> Slots:
    """An upload whose move is cut to a length, with Gaussian noise of `noise · clip` on it.

    The key is the node's own secret, and that of one upload: who asks the same again gets the
    same, for the mean of many draws would have no noise. Integers and booleans stay as they were
    sent: they tell nothing.

    Other rows could change the cut move by up to twice the clip, so that this is a Gaussian
    mechanism with a noise multiplier of noise / 2, for the node with all its rows.
    """
    if set(upload) != {"model"}:
        raise UserError("this node's noise covers a model alone; set optimizer_state=reset or keep")
    floats = {n for n, t in upload["model"].items() if is_wide(t)}
    moves = {n: upload["model"][n] - sent["model"][n] for n in floats}
    length = float(norms({"model": {n: t[None] for n, t in moves.items()}}))
    scale = min(1.0, clip / max(length, 1e-30))
    source = keyed(key)
    model = {n: sent["model"][n] for n in upload["model"]}
    for name in sorted(floats):
        step = moves[name].double() * scale + noise * clip * normal(moves[name].shape, source)
        model[name] = (sent["model"][name].double() + step).to(moves[name].dtype)
    return {"model": model}
