"""A node that comes back without what it had in hand is found out, and asked again."""

import json

import pytest
from flwr.app import Message, RecordDict
from liars import conduct, nodes, settings

from fedpn.flower.app import lost, post
from fedpn.flower.app.lost import ALIVE, Doubts
from fedpn.flower.app.post import Post
from fedpn.flower.app.records import INTRODUCE, PERSONALISE, SUM, TRAIN
from flower_grid import LocalGrid

FIRST, SECOND = 100, 101  # as helpers number nodes


class Clock:
    """Stands still until somebody pauses."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        return self.now

    def time(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


@pytest.fixture
def clock(monkeypatch):
    """Time of the server's looks for replies, and of nothing else."""
    clock = Clock()
    monkeypatch.setattr(lost, "time", clock)
    monkeypatch.setattr(post, "time", clock)
    return clock


class Forgetful(LocalGrid):
    """Its nodes lose some messages: `loses(kind, node)` tells which."""

    def __init__(self, nodes, loses):
        super().__init__(nodes)
        self.loses = loses

    def push_messages(self, messages):
        numbers = list(super().push_messages(messages))
        for number, message in zip(numbers, messages, strict=True):
            if self.loses(message.metadata.message_type, message.metadata.dst_node_id):
                self.posted[number] = []
        return numbers


def once(*lost_ones):
    """Loses the first of each such message alone."""
    left = list(lost_ones)

    def loses(kind, node):
        found = (kind, node) in left
        if found:
            left.remove((kind, node))
        return found

    return loses


def ask(grid, seconds):
    """A question that a node answers whatever is in it."""
    kinds = [Message(RecordDict(), dst_node_id=n, message_type=INTRODUCE) for n in grid.nodes]
    return {r.metadata.src_node_id: r for r in Post(grid).exchange(kinds, seconds)}


def test_a_node_that_answers_a_later_question_has_lost_the_earlier(tmp_path, clock):
    grid = Forgetful(nodes(tmp_path, 2), once((INTRODUCE, SECOND)))
    replies = ask(grid, seconds=None)
    assert not replies[FIRST].has_error()
    assert "lost what it was asked" in replies[SECOND].error.reason
    assert [node for kind, node, _ in grid.sent if kind == ALIVE] == [SECOND]


def test_a_node_that_says_nothing_at_all_is_waited_for(tmp_path, clock):
    grid = Forgetful(nodes(tmp_path, 2), lambda kind, node: node == SECOND)
    assert list(ask(grid, seconds=500.0)) == [FIRST]


def test_a_reply_that_comes_just_before_the_later_one_counts(tmp_path, clock):
    """Both came between two looks."""
    grid = LocalGrid(nodes(tmp_path, 2))
    pull, seen = grid.pull_messages, []

    def late(numbers):
        replies = {n: grid.posted.get(n, []) for n in numbers}
        seen.extend(n for n, r in replies.items() if r and r[0].metadata.message_type == ALIVE)
        return pull(numbers) if seen else []

    grid.pull_messages = late
    replies = ask(grid, seconds=None)
    assert seen and not any(reply.has_error() for reply in replies.values())


def test_questions_grow_rarer(tmp_path, clock):
    grid = Forgetful(nodes(tmp_path, 2), lambda kind, node: True)
    doubts, asked = Doubts(grid), []
    for second in range(500):
        clock.now, before = float(second), len(grid.sent)
        assert not doubts.poll([SECOND])
        asked += [second] * (len(grid.sent) - before)
    assert asked == [31, 92, 213, 454]


def test_an_answer_that_cannot_be_read_is_none(tmp_path, clock):
    grid = LocalGrid(nodes(tmp_path, 2))
    doubts = Doubts(grid)
    clock.now = lost.DOUBT + 1
    assert not doubts.poll([SECOND])
    assert doubts.asked

    def broken(numbers):
        raise ValueError("not a message")

    grid.pull_messages = broken
    assert not doubts.poll([SECOND])
    assert not doubts.asked


def test_a_run_in_which_messages_are_lost(tmp_path, clock):
    """Sums and own models are asked for again: the figures are those of a run without faults."""
    config = settings("fedavg", {"rounds": 1})
    faults = once((SUM, FIRST), (SUM, SECOND), (PERSONALISE, SECOND))
    found = conduct(Forgetful(nodes(tmp_path / "a"), faults), config, tmp_path / "lost")
    assert found == conduct(LocalGrid(nodes(tmp_path / "b")), config, tmp_path / "none")


def test_a_round_goes_on_without_a_node_that_lost_it(tmp_path, clock):
    grid = Forgetful(nodes(tmp_path), once((TRAIN, SECOND)))
    found = conduct(grid, settings("fedavg", {"rounds": 2}), tmp_path / "run")
    assert len(found["per_client"]) == len(grid.nodes)
    rounds = map(json.loads, (tmp_path / "run/history.jsonl").read_text().splitlines())
    assert [line["dropped"] for line in rounds] == [[1], []]
