"""The loop alone, with clients that answer what they are told to: who is asked, what is kept."""

from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from fedpn.core.errors import UserError
from fedpn.federated import conductor
from fedpn.federated.aggregation import AggregationSettings
from fedpn.federated.checkpoint import HISTORY, Journal
from fedpn.federated.conductor import Heard, check_rule, conduct
from fedpn.federated.gather import Total
from fedpn.federated.listener import Listener, Stopped
from fedpn.federated.phase import Phase
from settings import Kept

STEP = torch.tensor([3.0, 4.0])  # of length 5


class Add(Phase):
    """The server's model goes by what is heard."""

    name, remembers = "add", True

    def __init__(self, rounds=1):
        self.rounds = rounds

    def server(self, server, total):
        return {"model": {"w": server["model"]["w"] + total.sum["model"]["w"]}}


class Once(Add):
    name, remembers = "once", False

    def joining(self, clients, round_):
        return np.arange(clients)[: 2 - round_]


class Alone(Phase):
    sums = False

    def __init__(self, name):
        self.name = name


@dataclass
class Script:
    """A transport that plays back: how many steps are heard in each turn, None where nothing is."""

    turns: list
    lost: list = field(default_factory=list)
    asked: list = field(default_factory=list)
    visits: list = field(default_factory=list)

    def muster(self):
        return 3

    def gather(self, phase, state, clients, listener):
        self.asked.append((phase.name, state.round, clients.tolist()))
        steps = self.turns.pop(0)
        total = None if steps is None else Total({"model": {"w": steps * STEP}}, 1.0)
        return Heard(total, None if steps is None else steps / 2, self.lost, self.lost[1:])

    def visit(self, phases, server, listener):
        names = [phase.name for phase in phases]
        self.visits.append((names, server["model"]["w"].tolist()))
        return {c: dict.fromkeys(names, c) for c in range(2)}

    def probe(self, server):
        return float(server["model"]["w"].sum())

    def keep(self):
        return {"mine": torch.ones(1)}, {"who": "Script"}

    def restore(self, kept, about):
        assert kept["mine"].tolist() == [1.0] and about["who"] == "Script"

    def failure(self, rounds):
        return UserError(f"{rounds} empty")


@dataclass
class Hearing(Listener):
    """Writes down all that it hears; may ask to stop after a round."""

    stop: int = 99
    heard: list = field(default_factory=list)
    rounds: list = field(default_factory=list)

    def progress(self, stage, done, of, **facts):
        self.heard.append((stage, done, of, facts))

    def round(self, number, numbers):
        self.rounds.append((number, numbers))

    def stopping(self):
        return len(self.heard) >= self.stop


def play(phases, script, journal=None, listener=None, **patience):
    first = {"model": {"w": torch.zeros(2)}}
    journal, listener = journal or Kept(None), listener or Listener()
    return conduct(phases, script, first, journal, listener, **patience)


def test_a_round_is_told_as_it_was(monkeypatch):
    clock = iter(range(100, 999))
    monkeypatch.setattr(conductor, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    journal, listener = Kept(None), Hearing()
    script = Script([2.0, None, 1.0], lost=[4, 5])
    found = play([Add(3)], script, journal, listener)
    assert found.server["model"]["w"].tolist() == [9.0, 12.0]
    assert script.asked == [("add", r, [0, 1, 2]) for r in range(3)]
    same = {"joined": 3, "dropped": [4, 5], "refused": [5], "seconds": 1}
    told = [(1, 1.0, 10.0, 14.0), (2, None, 0.0, 14.0), (3, 0.5, 5.0, 21.0)]
    names = ("round", "loss", "norm", "accuracy")
    assert journal.lines == [same | dict(zip(names, line, strict=True)) for line in told]
    facts = [{"loss": loss, "accuracy": a, "left out": 3} for _, loss, _, a in told]
    assert listener.heard == [("add", i + 1, 3, fact) for i, fact in enumerate(facts)]
    first = {"round": 1, "loss": 1, "joined": 3, "norm": 10, "seconds": 1, "accuracy": 14}
    assert listener.rounds[0] == (1, first)
    assert "loss" not in listener.rounds[1][1], "a round in which nothing was heard has no loss"


def test_where_nobody_is_lost_nothing_is_said_of_it():
    listener = Hearing()
    play([Add()], Script([1.0]), listener=listener)
    assert listener.heard[0][3]["left out"] is None


def test_a_server_without_a_model_does_not_move():
    class Other(Add):
        def server(self, server, total):
            return {"sums": total.sum["model"]}

    journal, script = Kept(None), Script([1.0])
    script.probe = lambda server: None
    play([Other()], script, journal)
    assert journal.lines[0]["norm"] == 0.0


@pytest.mark.parametrize(
    ("turns", "words"),
    [
        ([None, None, 1, None, None, 1], ""),  # patience is with rounds in a row
        ([1, None, None, None, 1, 1], "3 empty"),
        ([1, 1, 1, 1, None, None], ""),  # what was heard before stands
    ],
)
def test_patience_ends_after_so_many_empty_rounds_in_a_row(turns, words):
    script = Script(list(turns))
    if not words:
        steps = sum(steps or 0 for steps in turns)
        assert play([Add(6)], script).server["model"]["w"].tolist() == [3 * steps, 4 * steps]
    else:
        with pytest.raises(UserError, match=words):
            play([Add(6)], script)
        assert len(script.turns) == 2


def test_a_run_in_which_nothing_ever_counted_fails_at_its_end():
    with pytest.raises(UserError, match="2 empty"):
        play([Add(2)], Script([None, None]), patience=9)
    play([Add(2)], Script([1, None]), patience=9)


def test_checkpoints_are_of_rounds_that_are_due_and_of_the_last():
    journal = Kept(None, every=2)
    play([Add(5)], Script([1.0] * 5), journal)
    assert [state.round for state in journal.states] == [2, 4, 5]
    assert all(state.counted for state in journal.states)


def test_who_is_stopped_has_saved_and_goes_on_from_there(tmp_path):
    def journal():
        return Journal(tmp_path, every=9)

    with pytest.raises(Stopped, match="after round 2 of 4"):
        play([Add(4)], Script([1.0] * 4), journal(), Hearing(stop=2))
    again = Script([None] * 2)
    found = play([Add(4)], again, journal(), patience=9)
    assert [r for _, r, _ in again.asked] == [2, 3]
    assert found.server["model"]["w"].tolist() == [6.0, 8.0]
    assert len((tmp_path / HISTORY).read_text().splitlines()) == 4


def test_who_asks_to_stop_after_the_last_round_is_too_late():
    assert play([Add(2), Once()], Script([1.0] * 3), listener=Hearing(stop=2)).server


def test_phases_without_sums_make_one_visit_and_their_records_are_put_together():
    script = Script([1.0, 1.0])
    phases = [Alone("a"), Alone("b"), Once(), Alone("c"), Once()]
    found = play(phases, script)
    assert script.visits == [(["a", "b"], [0.0, 0.0]), (["c"], [3.0, 4.0])]
    assert found.records == {c: {"a": c, "b": c, "c": c} for c in range(2)}
    assert script.asked == [("once", 0, [0, 1])] * 2, "a phase is asked whom it wants"
    assert found.server["model"]["w"].tolist() == [6.0, 8.0]


def test_a_phase_of_one_turn_in_which_nothing_counts_fails_at_once():
    with pytest.raises(UserError, match="1 empty"):
        play([Once()], Script([None]))


def test_rules_that_compare_moves_refuse_other_sums():
    class Open(Once):
        open = True

    class Move(Once):
        is_move = True

    median, mean = AggregationSettings(rule="median"), AggregationSettings()
    with pytest.raises(UserError, match=r"aggregation.rule=median .* phase 'once'"):
        check_rule([Move(), Once()], median)
    check_rule([Move(), Open(), Alone("a")], median)
    check_rule([Once()], mean)
