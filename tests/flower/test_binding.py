"""A reply counts once, and only as the answer to the question that it was given to."""

import copy
import json

import pytest
import torch
from flwr.app import Message, RecordDict
from flwr.common.secure_aggregation.secaggplus_constants import Key
from liars import LIAR, conduct, lying, nodes, scaled, settings, with_report

from fedpn.flower.app import lost
from fedpn.flower.app.binding import bind
from fedpn.flower.app.lost import Doubts
from fedpn.flower.app.pulling import STALE, pull
from fedpn.flower.app.standing import read_standing
from flower_grid import LocalGrid, wired

OTHER = 101
ROUNDS = {"rounds": 6, "routing": {"strangers": 0.0}}


def history(out):
    return [json.loads(line) for line in (out / "history.jsonl").read_text().splitlines()]


def model(out):
    return read_standing(out).server["model"]


def replaying(home, kept):
    """The liar repeats what it once said; `kept` chooses among what was heard by now."""
    grid = LocalGrid(nodes(home))

    def spoil(kind, number, content):
        found = kept(grid, kind) if number == LIAR else None
        return content if found is None else found

    grid.spoil = spoil
    return grid


def heard(grid, kind, node=LIAR):
    return [content for k, number, content in grid.heard if (k, number) == (kind, node)]


def vanishing(home, kind, after):
    """The same federation, in which the liar says nothing instead."""
    grid, seen = LocalGrid(nodes(home)), []

    def spoil(k, number, content):
        if (k, number) == (kind, LIAR):
            seen.append(content)
            return None if len(seen) > after else content
        return content

    grid.spoil = spoil
    return grid


def test_a_reply_of_the_first_round_counts_once(tmp_path, capsys):
    def first(grid, kind):
        return next(iter(heard(grid, kind)), None) if kind == "train" else None

    config = settings("fedavg", ROUNDS)
    conduct(replaying(tmp_path / "a", first), config, tmp_path / "a/run")
    assert [line["dropped"] for line in history(tmp_path / "a/run")] == [[], *[[2]] * 5]
    assert STALE.reason in capsys.readouterr().out
    conduct(vanishing(tmp_path / "b", "train", 1), config, tmp_path / "b/run")
    torch.testing.assert_close(model(tmp_path / "a/run"), model(tmp_path / "b/run"))


def test_a_reply_to_another_run(tmp_path):
    config = settings("fedavg", {"rounds": 2})
    before = LocalGrid(nodes(tmp_path / "before"))
    conduct(before, config, tmp_path / "before/run")
    (reply, _) = heard(before, "train")
    grid = lying(tmp_path / "after", "train", lambda content: reply)
    conduct(grid, config, tmp_path / "after/run")
    assert [line["dropped"] for line in history(tmp_path / "after/run")] == [[2], [2]]


def test_a_reply_of_another_node(tmp_path):
    """Under the liar's own name: what the other node was asked was not asked of this one."""

    def stolen(grid, kind):
        others = heard(grid, "train", OTHER)
        return with_report(others[-1], name="2") if kind == "train" and others else None

    conduct(replaying(tmp_path, stolen), settings("fedavg", {"rounds": 2}), tmp_path / "run")
    assert [line["dropped"] for line in history(tmp_path / "run")] == [[2], [2]]


def test_a_reply_to_another_phase(tmp_path, capsys):
    """Sums of one phase, and errors about it, are none of the next."""

    def first(grid, kind):
        return next(iter(heard(grid, kind)), None) if kind == "train.sum" else None

    conduct(replaying(tmp_path, first), settings("analytic"), tmp_path / "run")
    said = capsys.readouterr().out
    assert STALE.reason in said and "is done without its rows" in said
    assert "2 uploaded" not in said


def again(reply, content, **about):
    """Another content in the envelope of a reply, or in nearly the same one."""
    copied = Message(content, reply_to=reply)
    copied.__dict__["_metadata"] = copy.copy(reply.metadata)
    for name, value in about.items():
        copied.metadata.__dict__[f"_{name}"] = value
    return copied


def test_a_second_reply_to_a_question_does_not_count(tmp_path):
    grid = LocalGrid(nodes(tmp_path / "a"))
    pulled = grid.pull_messages

    def twice(numbers):
        replies = list(pulled(numbers))
        trained = [reply for reply in replies if reply.metadata.message_type == "train"]
        return replies + [again(reply, scaled(reply.content, 1.5)) for reply in trained]

    grid.pull_messages = twice
    config = settings("fedavg", {"rounds": 2})
    conduct(grid, config, tmp_path / "a/run")
    conduct(LocalGrid(nodes(tmp_path / "b")), config, tmp_path / "b/run")
    torch.testing.assert_close(model(tmp_path / "a/run"), model(tmp_path / "b/run"), rtol=0, atol=0)


def asked(grid, kind=lost.ALIVE, node=LIAR):
    question = bind(Message(RecordDict(), node, kind))
    (number,) = grid.push_messages([question.message])
    return {number: question}


ENVELOPES = {
    "the right one": ({}, True),
    "to another message": ({"reply_to_message_id": "message-99"}, False),
    "of another node": ({"src_node_id": OTHER}, False),
}


@pytest.mark.parametrize("kind", ENVELOPES)
def test_the_envelope_is_looked_at_too(kind, tmp_path):
    changes, counts = ENVELOPES[kind]
    grid = LocalGrid(nodes(tmp_path))
    waiting = asked(grid)
    (number,) = waiting
    (reply,) = grid.posted[number]
    grid.posted[number] = [again(reply, reply.content, **changes)]
    found = pull(grid, waiting)
    assert bool(found.replies) == counts
    assert found.broken == ({} if counts else {number: STALE})


def test_a_right_answer_beside_a_stale_one_counts(tmp_path):
    grid = LocalGrid(nodes(tmp_path))
    (old,), (new,) = asked(grid), (waiting := asked(grid))
    grid.posted[new] = [*grid.posted[old], *grid.posted[new]]
    (reply,) = pull(grid, waiting).replies
    assert reply.metadata.reply_to_message_id == new


def test_an_old_sign_of_life_is_none(tmp_path):
    """Else a node would count as one that has lost what it was asked since."""
    grid = LocalGrid(nodes(tmp_path))
    doubts = Doubts(grid)
    (number,) = first = asked(grid)
    old = grid.posted[number]
    doubts.asked |= (later := asked(grid))
    grid.posted[next(iter(later))] = old
    assert not doubts.poll([LIAR])
    doubts.asked |= first
    grid.posted[number] = old
    assert doubts.poll([LIAR]) == {LIAR}


def test_an_answer_without_a_number_is_none(tmp_path, capsys):
    """Of a node whose fedpn is older, say."""

    def unbound(kind, node, content):
        if node == LIAR:
            for record in content.config_records.values():
                record.pop("nonce", None)
        return content

    grid = LocalGrid(nodes(tmp_path))
    grid.spoil = unbound
    found = conduct(grid, settings("fedavg", {"rounds": 1}), tmp_path / "run", nodes=3)
    assert found["clients"] == 3
    assert "of an older fedpn" in capsys.readouterr().out


STAGES = (Key.PUBLIC_KEY_1, Key.CIPHERTEXT_LIST, Key.MASKED_PARAMETERS, Key.SHARE_LIST)


@pytest.mark.parametrize("key", STAGES)
def test_under_masks_each_message_has_a_number_of_its_own(key, tmp_path, capsys):
    """The liar repeats what it said in the turn before the rounds, or in the one before."""
    kept = []

    def spoil(kind, number, content):
        if number != LIAR or key not in content.config_records.get("secaggplus_configs", {}):
            return content
        kept.append(wired(content))
        return wired(kept[0])

    grid = LocalGrid(nodes(tmp_path))
    grid.spoil = spoil
    conduct(grid, settings("fedavg", ROUNDS | {"rounds": 2}), tmp_path / "run", secure=True)
    # Who has sent its masked vectors counts, whether or not it helps to take masks off.
    left_out = [] if key == Key.SHARE_LIST else [2]
    assert len(kept) == 3
    assert [line["dropped"] for line in history(tmp_path / "run")] == [left_out] * 2
    assert f"is not under the masks: {STALE.reason}" in capsys.readouterr().out
