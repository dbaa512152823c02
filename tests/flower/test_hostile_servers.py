"""Servers that lie, against the real ClientApp: a node answers what its policy allows, once."""

import json
import os
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from flwr.app import ConfigRecord, RecordDict
from flwr.common.secure_aggregation.secaggplus_constants import Key
from liars import conduct, nodes, settings, tensors

import fedpn
from fedpn import __version__
from fedpn.core.errors import UserError
from fedpn.core.trees import map_slots, unflatten
from fedpn.flower.app import masks, models, secure, state
from fedpn.flower.app.own import own_seed, refuse_other_nodes
from fedpn.flower.app.policy import Policy, check_steps, read_policy, write_policy
from fedpn.flower.app.records import Order, has_tensors, pack_order, read_order
from fedpn.runs.config import to_tree
from flower_grid import LocalGrid

SECRET = "Mrs Smith"


@pytest.fixture
def hospital(tmp_path):
    """A node with a table of its own, one cell of which is a name."""
    rng = np.random.default_rng(0)
    lines = [f"{a:.3f},{b:.3f},{'ill' if a > 0 else 'well'}" for a, b in rng.normal(size=(60, 2))]
    (tmp_path / "data.csv").write_text("pulse,pressure,label\n" + "\n".join(lines) + "\n")
    state = tmp_path / "state"
    state.mkdir()
    return {"name": "anna", "data": str(tmp_path / "data.csv"), "state-dir": str(state)}


def policy_of(hospital, tmp_path, **changes):
    text = write_policy(replace(Policy(), **changes))
    (tmp_path / "state/policy.toml").write_text(text)


def tree_of(**changes):
    """Settings as a server sends them, which need not be such that fedpn would."""
    data = {"classes": ["ill", "well"], "limit": 0, "partition": "auto"}
    tree = to_tree(settings("fedavg", {"dataset": "clinic", "data": data}))
    for key, value in changes.items():
        *path, last = key.split("__")
        place = tree
        for name in path:
            place = place[name]
        place[last] = value
    return tree


def ask(node, kind="query.introduce", slots=None, tree=None, **order):
    """What a node answers a server: its report, and its tensors."""
    told = Order("run", json.dumps(tree or tree_of()), version=__version__)
    content = pack_order(replace(told, **order), slots)
    grid = LocalGrid({5: node})
    from flwr.app import Message

    (reply,) = grid.send_and_receive([Message(content, dst_node_id=5, message_type=kind)])
    report = dict(reply.content.config_records["report"])
    found = tensors(reply.content) if has_tensors(reply.content) else {}
    return report, found


def refusal(*args, **kwargs):
    report, found = ask(*args, **kwargs)
    assert report["error"] and not found
    return report["error"]


def test_an_honest_question_is_answered(hospital):
    report, _ = ask(hospital)
    assert not report["error"]
    assert json.loads(report["facts"])["features"] == ["pulse", "pressure"]


def test_other_seeds_and_limits_do_not_choose_other_rows(hospital):
    """Differences of sums over rows that a server chooses would give every cell."""
    seen = []
    for i in range(12):
        tree = tree_of(seed=i, data__limit=[0, 4, 5, 40][i % 4])
        _, found = ask(hospital, "train.sum", tree=tree, run=f"run{i}", phase="normalise")
        seen.append(found["moments/total"])
    assert all(torch.equal(total, seen[0]) for total in seen)


@pytest.mark.parametrize(
    "change", [{"seed": 5}, {"data__ignore": ["pulse"]}, {"train__steps": 7}], ids=str
)
def test_a_run_keeps_the_settings_that_it_began_with(change, hospital):
    """Others would be other questions, as many as there are settings."""
    assert not ask(hospital, "train.sum", phase="normalise")[0]["error"]
    told = refusal(hospital, "train.sum", tree=tree_of(**change), phase="normalise")
    assert "not those that it began with" in told
    more = tree_of(rounds=7, clients=3, engine__cohort=2)  # of one that goes on after a stop
    assert not ask(hospital, "train.sum", tree=more, phase="normalise")[0]["error"]
    fewer = tree_of()  # as an older fedpn wrote them, which knew one setting less
    del fewer["train"]["least"]
    assert not ask(hospital, "train.sum", tree=fewer, phase="normalise")[0]["error"]


def test_another_question_of_a_kind_is_answered_three_times_at_most(hospital):
    def asked(i):
        census = {"census": {"kinds": torch.full((2, 6), float(i), dtype=torch.float64)}}
        return ask(hospital, "train.sum", census, phase="normalise", roles="census")[0]["error"]

    told = [asked(i) for i in range(6)]
    assert not any(told[:3]) and all("different questions" in words for words in told[3:])
    assert not asked(0)  # the same question has the same answer, whoever was killed meanwhile


REFUSED = {
    "a batch of one": ({"train__batch": 1}, "a batch has at least 2 rows"),
    "a batch of one, no rounds": ({"train__batch": 1, "rounds": 0}, "at least 2 rows"),
    "a million epochs": ({"train__epochs": 10**6}, "the settings of train make 4000000"),
    "a million own epochs": ({"fedavg": {"adapt_epochs": 10**6}}, "the settings of adapt make"),
    "ten million steps": ({"train__steps": 10**7}, "must be at most 1000000"),
    "a million rounds": ({"rounds": 10**6}, "at most 10000 rounds"),
    "a file as weights": ({"model__pretrained": "/etc/passwd"}, "no file is read"),
    "code as algorithm": ({"algorithm": "/tmp/evil.py:Evil"}, "executes no code"),
    "code as encoder": ({"model__encoder": "evil:Evil"}, "executes no code"),
    "code as router": ({"routing__router": "os:system"}, "executes no code"),
    "a zero byte": ({"dataset": "a\0b"}, "zero byte"),
    "no settings": ({"clients": -5}, "clients"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_the_policy_does_not_allow_is_refused(kind, hospital):
    changes, words = REFUSED[kind]
    told = refusal(hospital, tree=tree_of(**changes))
    assert words in told and "root" not in told


def test_code_is_not_even_looked_for(hospital, tmp_path):
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'was run')!r}, 'w')")
    refusal(hospital, tree=tree_of(algorithm=f"{tmp_path / 'evil.py'}:Evil"))
    assert not (tmp_path / "was run").exists()


@pytest.mark.parametrize("dataset", ["/etc/passwd", "../data.csv", "data.csv", "https://x.example"])
def test_a_node_for_trials_opens_no_file_that_a_server_names(dataset, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data.csv").write_text("a,label\n1,x\n")
    node = {"partition-id": 0, "num-partitions": 2, "state-dir": str(tmp_path / "s")}
    tree = to_tree(settings()) | {"dataset": dataset}
    assert "only named sets" in refusal(node, tree=tree)


ORDERS = {
    "a way out of the directory": ({"run": "../../elsewhere"}, ""),
    "no phase of fedpn": ({"phase": "give me all"}, "knows no phase"),
    "a phase that is the node's own": ({"phase": "calibrate"}, "knows no phase"),
    "a round before the first": ({"phase": "normalise", "round": -1}, "round -1"),
    "a round beyond all": ({"phase": "normalise", "round": 10**9}, "round 1000000000"),
    "another version": ({"version": "9.9.9"}, "install the same on both"),
    "a version of nothing": ({"version": ""}, "install the same on both"),
}


@pytest.mark.parametrize("kind", ORDERS)
def test_an_order_that_cannot_be_is_refused(kind, hospital, tmp_path):
    order, words = ORDERS[kind]
    assert words in refusal(hospital, "train.sum", **order)
    assert not list(tmp_path.parent.glob("elsewhere*"))


def test_an_order_of_other_types_is_refused(hospital):
    order = asdict(Order("run", json.dumps(tree_of()), version=__version__)) | {"round": "seven"}
    from flwr.app import Message

    message = Message(
        RecordDict({"order": ConfigRecord(order)}), dst_node_id=5, message_type="train"
    )
    (reply,) = LocalGrid({5: hospital}).send_and_receive([message])
    assert "of another kind" in dict(reply.content.config_records["report"])["error"]


def test_runs_and_messages_of_a_day_are_counted(hospital, tmp_path):
    policy_of(hospital, tmp_path, runs_a_day=3, messages_a_day=8)
    told = [ask(hospital, run=f"run{i}")[0]["error"] for i in range(5)]
    assert not any(told[:3]) and all("at most 3 runs a day" in words for words in told[3:])
    told = [ask(hospital, run="run0")[0]["error"] for _ in range(8)]
    assert "at most 8 messages a day" in told[-1]


def test_columns_and_label_are_those_of_the_policy(hospital, tmp_path):
    policy_of(hospital, tmp_path, columns=("pulse",), label="label")
    assert "another column is its label" in refusal(hospital, tree=tree_of(data__label="pulse"))
    told = refusal(hospital, tree=tree_of(data__label="label", data__features=["pressure"]))
    assert "columns that it allows" in told
    tree = tree_of(data__label="label", data__features=["pulse"])
    assert not ask(hospital, tree=tree)[0]["error"]


def test_names_are_told_only_if_the_policy_says_so(hospital, tmp_path):
    policy_of(hospital, tmp_path, names=False)
    assert "data.classes" in refusal(hospital, tree=tree_of(data__classes=[]))
    told = refusal(hospital)  # it has columns, whose names the run does not know
    assert "data.features" in told and "pulse" not in told


def test_few_rows_take_no_part(hospital, tmp_path):
    policy_of(hospital, tmp_path, least_rows=100)
    assert "fewer than 100 training rows" in refusal(hospital)


def test_words_about_a_cell_stay_in_the_nodes_log(hospital, tmp_path, capfd):
    path = tmp_path / "data.csv"
    path.write_text(path.read_text() + f"1.0,2.0,{SECRET}\n")
    told = refusal(hospital)
    assert SECRET not in told and str(tmp_path) not in told and "its log tells why" in told
    assert SECRET in capfd.readouterr().err


def test_a_model_that_is_none_is_not_trained_on(tmp_path):
    """A server that sends what was not agreed on learns nothing of how rows answer to it."""
    grid = LocalGrid(nodes(tmp_path))
    conduct(grid, settings(), tmp_path / "run")
    kind, number, content = next(found for found in grid.sent if found[0] == "train")
    order = read_order(content)
    slots = {}
    for name, tensor in tensors(content).items():
        role, _, rest = name.partition("/")
        slots.setdefault(role, {})[rest] = tensor
    node = grid.nodes[number]
    spoilt = {**slots, "model": {n: t * float("nan") for n, t in slots["model"].items()}}
    wider = {**slots, "model": {n: t[..., None] for n, t in slots["model"].items()}}
    facts = {k: v for k, v in asdict(order).items() if k != "config"}
    tree = json.loads(order.config)
    assert "not finite" in refusal(node, kind, spoilt, tree, **facts)
    assert "not of the form" in refusal(node, kind, wider, tree, **facts)


def a_round(tmp_path, *layers):
    """A node and what it was asked in its first round: its slots, settings and order."""
    grid = LocalGrid(nodes(tmp_path))
    conduct(grid, settings("fedavg", *layers), tmp_path / "run")
    _, number, content = next(found for found in grid.sent if found[0] == "train")
    order = asdict(read_order(content))
    tree = json.loads(order.pop("config"))
    return grid.nodes[number], unflatten(tensors(content), ()), tree, order


def test_rounds_are_not_played_again_and_again(tmp_path):
    (node, slots, tree, order), told = a_round(tmp_path), ""
    for i in range(14):
        moved = map_slots(lambda t, by=1e-3 * (i + 1): t + by, slots)
        told = ask(node, "train", moved, tree, **order)[0]["error"]
    assert "different questions for 'federate'" in told


def test_a_run_without_rounds_plays_none(tmp_path):
    node, slots, tree, order = a_round(tmp_path)
    told = refusal(node, "train", slots, tree | {"rounds": 0}, **order)
    assert "knows no phase 'federate'" in told


def test_noise_is_not_taken_off_by_asking_again(tmp_path):
    """The mean of many answers, each with a noise of its own, would have next to none."""
    private = {"aggregation": {"rule": "private"}, "method": {"optimizer_state": "reset"}}
    node, slots, tree, order = a_round(tmp_path, {"rounds": 1}, private)
    clear = ask(node, "train", slots, tree, **order)[1]
    policy = write_policy(replace(Policy(), noise=1.0, clip=1.0))
    (tmp_path / "node0/policy.toml").write_text(policy)
    first, again = (ask(node, "train", slots, tree, **order)[1] for _ in range(2))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert any(not torch.equal(first[name], clear[name]) for name in first)
    other = ask(node, "train", map_slots(lambda t: t + 1e-6, slots), tree, **order)[1]
    noises = [torch.cat([f[n].ravel() - clear[n].ravel() for n in clear]) for f in (first, other)]
    assert abs(float(torch.corrcoef(torch.stack(noises).double())[0, 1])) < 0.1


def test_masks_do_not_come_off_for_all_and_then_for_all_but_one(tmp_path, monkeypatch):
    """The difference would be the move of the one."""
    call, found = secure.Sum.__call__, []

    def twice(self, contents, round_):
        found.append(call(self, contents, round_))
        some = dict(list(contents.items())[:-1])
        found.append(call(self, some, round_))
        found.append(call(self, contents, round_))  # the same again
        return found[-1]

    monkeypatch.setattr(secure.Sum, "__call__", twice)
    config = settings("fedavg", {"rounds": 1, "routing": {"strangers": 0.0}})
    conduct(LocalGrid(nodes(tmp_path)), config, tmp_path / "run", secure=True)
    assert len(found) >= 3
    assert [total is not None for total in found] == [True, False, True] * (len(found) // 3)


def test_names_of_people_are_not_told_as_classes(tmp_path):
    lines = [f"Smith {i},{i % 7}.5,{'ill' if i % 3 else 'well'}" for i in range(60)]
    (tmp_path / "data.csv").write_text("name,pulse,label\n" + "\n".join(lines) + "\n")
    node = {"name": "anna", "data": str(tmp_path / "data.csv")}
    node["state-dir"] = str(tmp_path / "state")
    (tmp_path / "state").mkdir()
    tree = tree_of(data__label="name", data__classes=[])
    assert "fewer than 5 rows" in refusal(node, tree=tree)
    policy_of(node, tmp_path, columns=("pulse",))
    tree = tree_of(data__label="name", data__classes=[], data__features=["pulse"])
    assert "not among its columns" in refusal(node, tree=tree)


def test_a_secret_that_was_cut_short_is_not_used(hospital, tmp_path):
    (tmp_path / "state/secret").write_bytes(b"")
    assert "could not" in refusal(hospital)
    with pytest.raises(UserError, match="must hold 32 bytes"):
        own_seed(tmp_path / "state", "rows")


def test_work_is_counted_as_it_will_be_done():
    """Of a large node an honest run passes; who comes late plays rounds for one message."""
    run = settings("fedavg", {"rounds": 100, "train": {"epochs": 5, "batch": 64}})
    check_steps(run, Policy(), 2_000_000)
    with pytest.raises(UserError, match="the settings of train make 1562500"):
        check_steps(run, Policy(), 2_000_000, late=True)
    check_steps(replace(run, rounds=0), Policy(), 10**9)


def test_models_of_long_ago_do_not_fill_the_disk_and_what_was_asked_stays(tmp_path, monkeypatch):
    monkeypatch.setattr(state, "KEPT", 3)
    for i in range(6):
        node = state.NodeState(tmp_path, f"run{i}", "data")
        node.save(1, {"model": {"w": torch.zeros(3)}}, 0)
        refuse_other_nodes(node.place, "question", [1, 2, 3])
        (memory,) = node.place.glob("memory-*")
        os.utime(memory, (i, i))
    state.NodeState(tmp_path, "last", "data")
    kept = {path.parent.name for path in tmp_path.rglob("memory-*")}
    assert kept == {"run3", "run4", "run5"}
    with pytest.raises(UserError, match="came off for other nodes already"):
        refuse_other_nodes(tmp_path / "runs/run0", "question", [1, 2])
    with pytest.raises(UserError, match="cannot be that of a directory"):
        state.NodeState(tmp_path, "x" * 65, "data")


def test_a_node_that_masks_sends_nothing_in_clear(hospital, tmp_path):
    policy_of(hospital, tmp_path, secure=True)
    assert "under a mask only" in refusal(hospital, "train.sum", phase="normalise")


def test_a_node_that_adds_noise_sends_nothing_without(hospital, tmp_path):
    policy_of(hospital, tmp_path, noise=2.0, clip=0.5)
    assert "has none for 'normalise'" in refusal(hospital, "train.sum", phase="normalise")


LISTS = {
    "one both here and gone": ([1, 2, 3, 4], [4], "both here and gone"),
    "one twice": ([1, 1, 1], [2, 3, 4], "both here and gone"),
    "fewer than the masks were made for": ([1, 2], [3, 4], "fewer than"),
    "this one gone": ([2, 3, 4], [1], "leave this one out"),
    "a node that took no part": ([1, 2, 3, 9], [], "took no part"),
    "no numbers": ([1, 2, 3.0], [], "lists of nodes are none"),
}


@pytest.mark.parametrize("kind", LISTS)
def test_masks_are_not_taken_off_by_lies(kind):
    here, gone, words = LISTS[kind]
    asked = {Key.ACTIVE_NODE_ID_LIST: here, Key.DEAD_NODE_ID_LIST: gone}
    state = {"threshold": 3, "rd_seed_share_dict:K": [1, 2, 3, 4]}
    with pytest.raises(UserError, match=words):
        masks.check_unmask(asked, state, me=1)
    masks.check_unmask({Key.ACTIVE_NODE_ID_LIST: [1, 2, 3], Key.DEAD_NODE_ID_LIST: [4]}, state, 1)


def test_a_lying_server_does_not_unmask_one_node(tmp_path):
    """It says in the last message that a victim is gone though its vector came."""
    grid, seen = LocalGrid(nodes(tmp_path)), []
    send = grid.send_and_receive

    def lie(messages, *, timeout=None):
        for message in messages:
            told = message.content.config_records.get("secaggplus_configs", {})
            if Key.DEAD_NODE_ID_LIST in told and message.metadata.dst_node_id != 102:
                told[Key.DEAD_NODE_ID_LIST] = [102]  # and still among those who are here
                seen.append(message.metadata.dst_node_id)
        return send(messages, timeout=timeout)

    grid.send_and_receive = lie
    config = settings("fedavg", {"rounds": 1, "routing": {"strangers": 0.0}})
    with pytest.raises(RuntimeError, match="no valid upload"):
        conduct(grid, config, tmp_path / "run", secure=True)
    told = [c.config_records.get("secaggplus_configs", {}) for _, n, c in grid.heard if n in seen]
    assert seen and not any(Key.SHARE_LIST in shares for shares in told)


SOUND = {
    Key.THRESHOLD: 3,
    Key.SHARE_NUMBER: 4,
    Key.SAMPLE_NUMBER: 4,
    Key.TARGET_RANGE: 2**22,
    Key.MOD_RANGE: masks.MODULUS,
    Key.CLIPPING_RANGE: masks.REACH,
}
TERMS = {
    "a text": ({Key.THRESHOLD: "3"}, "no numbers"),
    "a truth": ({Key.SHARE_NUMBER: True}, "no numbers"),
    "one alone": ({Key.THRESHOLD: 1}, "protect nobody"),
    "each of two halves": ({Key.THRESHOLD: 2}, "protect nobody"),
    "more than there are": ({Key.THRESHOLD: 5}, "protect nobody"),
    "shares for a few": ({Key.SHARE_NUMBER: 3}, "protect nobody"),
    "a small modulus": ({Key.MOD_RANGE: 2**8}, "not those of fedpn"),
    "no levels": ({Key.TARGET_RANGE: 0}, "not those of fedpn"),
    "levels beyond the modulus": ({Key.TARGET_RANGE: 2 * masks.MODULUS}, "not those of fedpn"),
    "another reach": ({Key.CLIPPING_RANGE: 1e9}, "not those of fedpn"),
}


@pytest.mark.parametrize("kind", TERMS)
def test_terms_under_which_masks_protect_nobody_are_refused(kind):
    changes, words = TERMS[kind]
    with pytest.raises(UserError, match=words):
        masks.check_setup(SOUND | changes)
    masks.check_setup(SOUND)


def test_masks_come_from_all_of_a_secret():
    """Flower's own would fold these two seeds to the same 32 bits."""
    one, other = bytes(32), bytes(4) + b"abcd" + b"abcd" + bytes(20)
    (first,), (second,) = (masks.draw_masks(seed, 2**32, [(1000,)]) for seed in (one, other))
    assert (first != second).mean() > 0.99
    assert abs(first.mean() / 2**32 - 0.5) < 0.05


def test_a_run_does_not_take_the_last_good_model_away(tmp_path):
    grid = LocalGrid(nodes(tmp_path))
    config = settings("fedavg", {"rounds": 1})
    for i in range(3):
        conduct(grid, config, tmp_path / f"run{i}")
    home = tmp_path / "node1"
    assert models.versions(home) == ["0001", "0002", "0003"] and models.current(home) == "0003"
    assert models.rollback(home) == "0002" == models.current(home)
    fedpn.load(home)
    with pytest.raises(UserError, match="no version '7'"):
        models.rollback(home, "7")


@pytest.mark.parametrize("step", ["before the link", "a model of an older fedpn"])
def test_publishing_outlives_a_kill(step, tmp_path):
    conduct(LocalGrid(nodes(tmp_path)), settings("fedavg", {"rounds": 1}), tmp_path / "run")
    home = tmp_path / "node1"
    (home / "bundle").unlink()
    if step == "a model of an older fedpn":
        (home / "models/0001").rename(home / "bundle")
    models.mend(home)
    assert models.current(home) == "0001"
    fedpn.load(home)


def test_a_policy_is_read_as_it_is_written(tmp_path):
    (tmp_path / "policy.toml").write_text(write_policy(Policy(algorithms=("fedpn",), noise=1.5)))
    assert read_policy(tmp_path) == Policy(algorithms=("fedpn",), noise=1.5)
    (tmp_path / "policy.toml").write_text('algorithms = ["fedpm"]')
    with pytest.raises(UserError, match="fedpm"):
        read_policy(tmp_path)
