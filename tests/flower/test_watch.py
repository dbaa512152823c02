"""What is read of status files, honest or not, and how it is told to people and programs."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

import statuses
from fedpn.cli.main import main
from fedpn.core.errors import UserError
from fedpn.flower.deploy.node import Link
from fedpn.flower.status import FILE, write_status
from fedpn.flower.watch.metrics import FAMILIES, metrics
from fedpn.flower.watch.page import serve_page
from fedpn.flower.watch.snapshot import snapshot
from fedpn.flower.watch.standing import SILENT, note, state_of
from fedpn.flower.watch.status import NODES, Run, Site, Unreadable, look, read
from fedpn.flower.watch.table import show
from fedpn.flower.worker.diary import Diary

HOSTILE = '<b>"a\\b"</b>\n\x1b[31m\u202e\ud800'


def gone():
    """The number of a process that has ended."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


@pytest.fixture
def places(tmp_path):
    statuses.write(tmp_path / "a", statuses.going())
    statuses.write(tmp_path / "b", statuses.finished())
    statuses.write(tmp_path / "c", statuses.node())
    statuses.write(tmp_path / "c", statuses.link(), "link.json")
    statuses.write(tmp_path / "d", "{")
    (tmp_path / "other").mkdir()
    return tmp_path


def test_a_directory_that_holds_several(places):
    found = look([places])
    assert [type(item) for item in found] == [Run, Run, Site, Unreadable]
    assert look([places / "a", places / "a", places]) == [found[0], *found[1:]]
    assert look([places / "other", places / "nowhere"]) == []


def test_what_nodes_and_runs_write_is_read(tmp_path):
    """By the writers of the programs themselves."""
    diary = Diary(tmp_path, name="st-anna")
    diary.last = {"run": "ab12", "loss": float("nan"), "received": 7, "sent": 8}
    diary.warnings.add("odd \u202e words" * 100)
    diary.write("ready")
    Link(tmp_path, "link.example:443").tell("connected")
    (node,) = look([tmp_path])
    assert (node.name, node.run, node.loss, node.sent) == ("st-anna", "ab12", None, 8)
    assert node.link.superlink == "link.example:443"
    assert state_of(node, time.time()) == "ready"
    write_status(tmp_path / FILE, statuses.going())
    assert look([tmp_path])[0].nodes[0].name == "st-anna"


def test_what_is_missing_is_unknown(tmp_path):
    statuses.write(tmp_path / "run", {"format": 1, "role": "server"})
    statuses.write(tmp_path / "new", statuses.link(state="waiting"), "link.json")
    new, run = look([tmp_path])
    assert run.nodes == run.warnings == () and run.round is None
    assert state_of(run, 0) == "running"
    assert state_of(new, 0) == "waiting"  # before its worker has written anything
    for told in (
        show([run, new], 0.0),
        metrics([run, new], 0.0),
        json.dumps(snapshot([tmp_path], 0.0)),
    ):
        assert "None" not in told


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": 2}, "format 2"),
        ({"format": True}, "format True"),
        ({"role": "king"}, "neither server nor node"),
        ({"round": "3"}, "its round is not a whole number"),
        ({"round": -1}, "its round is not"),
        ({"round": True}, "its round is not"),
        ({"rounds": 10**400}, "its rounds is not"),
        ({"loss": "0.3"}, "its loss is not a number"),
        ({"updated": -5}, "its updated is not a time"),
        ({"pid": 0}, "its pid is no process"),
        ({"secure": "no"}, "its secure is neither"),
        ({"name": ["x"]}, "its name is not a text"),
        ({"nodes": {}}, "not a list"),
        ({"nodes": [1]}, "holds what is no object"),
        ({"nodes": [{"name": None}]}, "no names"),
        ({"nodes": [{"name": "a"}, {"name": "a"}]}, "two have the same"),
        ({"nodes": [{"name": "a", "state": "dead"}]}, "its state is none of here"),
        ({"nodes": [{"name": "a"}] * (NODES + 1)}, "at most 10000"),
        ({"warnings": "x"}, "not a list"),
        ({"figures": [1]}, "figures are no table"),
        ({"figures": {"accuracy": {"local": {"ind": 3}}}}, "not a share"),
        ({"figures": {"accuracy": {"local": 1}}}, "not a table"),
    ],
)
def test_nonsense_is_refused(change, words, tmp_path):
    found = read(statuses.write(tmp_path, statuses.going(**change)))
    assert isinstance(found, Unreadable)
    assert words in found.why


def test_a_loss_beyond_all_measure_is_unknown(tmp_path):
    """A node may tell any; it must not hide the rest of the run."""
    for loss in (10**400, 1e300, -1e20, float("inf")):
        node = {"name": "a", "loss": loss}
        found = read(statuses.write(tmp_path, statuses.going(loss=loss, nodes=[node])))
        assert found.loss is None and found.nodes[0].loss is None


@pytest.mark.parametrize(
    ("content", "words"),
    [("", "not JSON"), ("[]", "no object"), ("[" * 100_000, "not JSON"), ("\x00", "not JSON")],
)
def test_damage_is_refused(content, words, tmp_path):
    assert words in read(statuses.write(tmp_path, content)).why


def test_neither_pipes_nor_links_nor_heaps_are_read(tmp_path):
    for name in ("pipe", "link", "heap", "folder"):
        (tmp_path / name).mkdir()
    os.mkfifo(tmp_path / "pipe" / "status.json")
    (tmp_path / "link" / "status.json").symlink_to("/dev/zero")
    (tmp_path / "folder" / "status.json").mkdir()
    with (tmp_path / "heap" / "status.json").open("wb") as file:
        file.truncate(2**40)
    whys = {item.place.rpartition("/")[2]: item.why for item in look([tmp_path])}
    assert "no file" in whys["pipe"]
    assert "symbolic link" in whys["link"]
    assert "more than 8 MB" in whys["heap"]
    assert "Is a directory" in whys["folder"]


def test_a_hostile_name_is_shown_as_it_is_and_moves_nothing(tmp_path):
    tree = statuses.going(
        name=HOSTILE, nodes=[statuses.member(HOSTILE), statuses.member("x" * 999)]
    )
    run = read(statuses.write(tmp_path, tree))
    text = show([run], time.time())
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\u202e\ud800-\udfff]", text)
    assert "<b>" in text
    assert len(run.nodes[1].name) == 300
    assert max(map(len, text.splitlines())) < 200


def test_how_a_run_stands(tmp_path):
    now = time.time()
    run = read(statuses.write(tmp_path, statuses.going()))
    assert state_of(run, now) == "running"
    assert state_of(run, now + SILENT + 5) == "silent"
    lost = replace(run, pid=gone())
    assert state_of(lost, now) == "gone"
    assert "--resume" in note(lost, now)
    for ended, state in (("finished", "finished"), ("stopped", "stopped"), ("failed: x", "failed")):
        assert state_of(replace(lost, ended=ended), now + 9999) == state
    assert note(replace(run, ended="failed: too few nodes"), now) == "too few nodes"


def test_how_a_node_stands(tmp_path):
    now = time.time()
    statuses.write(tmp_path, statuses.link(), "link.json")
    node = read(statuses.write(tmp_path, statuses.node()))
    assert state_of(node, now) == "busy"
    assert state_of(node, now + SILENT + 5) == "silent"
    assert state_of(replace(node, worker="ready"), now + 9999) == "ready"  # idle, not silent
    assert state_of(replace(node, worker="gone"), now) == "gone"
    assert state_of(replace(node, pid=gone()), now) == "gone"
    refused = replace(node.link, state="refused", why="its key is not registered")
    assert state_of(replace(node, link=refused), now) == "refused"
    assert note(replace(node, link=refused), now) == "its key is not registered"


def test_the_table(places, capsys):
    assert main(["flower", "status", str(places)]) == 1  # d cannot be read
    told = capsys.readouterr().out
    for words in (
        "running · federate · round 3 of 20 · loss 0.314 · about 4 min 11 s left",
        "st-clara: its upload was 214 times as long",
        "st-berta did not answer round 3 in 60 s",
        "oracle    97.3     –  94.9",
        "connected (link.hospital.example:443)",
        "d: its status cannot be read: status.json is not JSON",
    ):
        assert words in told
    rows = [line.split()[:3] for line in told.splitlines() if line.startswith("  st-")]
    assert [row[:2] for row in rows[:3]] == [
        ["st-anna", "here"],
        ["st-berta", "away"],
        ["st-clara", "left"],
    ]
    assert main(["flower", "status", str(places / "a"), str(places / "c")]) == 0


def test_json_is_for_programs(places, capsys):
    main(["flower", "status", "--json", str(places)])
    tree = json.loads(capsys.readouterr().out)
    assert [run["state"] for run in tree["runs"]] == ["running", "finished"]
    assert tree["runs"][0]["nodes"][0]["name"] == "st-anna"
    assert tree["nodes"][0]["link"]["state"] == "connected"
    assert len(tree["unreadable"]) == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere"], "nothing in nowhere tells of itself"),
        (["nowhere", "--port", "8000"], "--port goes with --page"),
        (["nowhere", "--page", "--port", "70000"], "--port is 70000"),
    ],
)
def test_a_mistake_is_one_sentence(arguments, words, capsys):
    assert main(["flower", "status", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_prometheus_reads_the_metrics(places):
    statuses.write(places / "e", statuses.going(name=HOSTILE, nodes=[statuses.member(HOSTILE)]))
    items = look([places])
    families = {f.name: f for f in text_string_to_metric_families(metrics(items, time.time()))}
    samples = [(s.name, *sorted(s.labels.items())) for f in families.values() for s in f.samples]
    assert len(samples) == len(set(samples)) > 50
    assert {f"fedpn_{f.name}".removesuffix("_total") for f in FAMILIES} == set(families)
    nodes = families["fedpn_run_node_seen_timestamp_seconds"].samples
    hostile = next(item for item in items if item.place == str(places / "e"))
    assert nodes[-1].labels["node"] == hostile.nodes[0].name  # every mark came through
    states = {s.labels["state"]: s.value for s in families["fedpn_run_state"].samples[:6]}
    assert states == {**dict.fromkeys(states, 0.0), "running": 1.0}
    sent = families["fedpn_run_node_sent_bytes"]
    assert sent.type == "counter" and sent.samples[0].value == 1_234_567
    assert families["fedpn_status_unreadable"].samples[0].value == 1


def ask(page, path="/status.json", method="GET", headers=None, host="127.0.0.1"):
    address = page.address.split("/")[2]
    connection = http.client.HTTPConnection(address, timeout=120)
    connection.putrequest(method, path, skip_host=True)
    for name, value in {"Host": host, **(headers or {})}.items():
        if value is not None:
            connection.putheader(name, value)
    connection.endheaders()
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer, body


def test_the_page_is_this_machines_alone(places):
    with serve_page([places], 0) as page:
        assert page.address.startswith("http://127.0.0.1:")
        for host in ("127.0.0.1", "localhost:9000", "LOCALHOST"):
            assert ask(page, host=host)[0].status == 200
        for host in (
            "evil.example",
            "127.0.0.1.evil.example",
            "localhost:x",
            "a@localhost",
            "",
            None,
        ):
            answer, body = ask(page, host=host)
            assert answer.status == 403, host
            assert b"st-anna" not in body
        assert ask(page, headers={"Origin": "http://evil.example"})[0].status == 403
        assert ask(page, headers={"Origin": "null"})[0].status == 403
        assert ask(page, headers={"Origin": "http://127.0.0.1"})[0].status == 200


def test_the_page_serves_its_own_files_and_nothing_else(places):
    with serve_page([places], 0) as page:
        for path, kind in (
            ("/", "text/html"),
            ("/?x", "text/html"),
            ("/page.js", "text/javascript"),
            ("/page.css", "text/css"),
            ("/metrics", "text/plain; version=0.0.4"),
            ("/status.json", "application/json"),
        ):
            answer, body = ask(page, path)
            assert answer.status == 200 and answer.headers["Content-Type"].startswith(kind)
            assert len(body) == int(answer.headers["Content-Length"]) > 0
            policy = answer.headers["Content-Security-Policy"]
            assert "default-src 'none'" in policy and "unsafe" not in policy
            assert ask(page, path, "HEAD")[1] == b""
        for path in ("/etc/passwd", "/../status.py", "/static/page.js", "/page.py"):
            assert ask(page, path)[0].status == 404
        for method in ("POST", "PUT", "DELETE", "OPTIONS"):
            answer, _ = ask(page, method=method)
            assert answer.status == 501
            assert answer.headers["Content-Security-Policy"]


def test_a_page_that_is_stopped_leaves_its_port(places):
    with serve_page([places], 0) as page:
        port = int(page.address.split(":")[2].strip("/"))
        with pytest.raises(UserError, match=f"port {port} .* choose another"):
            serve_page([places], port)
    serve_page([places], port).stop()


def test_the_page_shows_what_is_new(places):
    with serve_page([places / "a"], 0) as page:
        assert json.loads(ask(page)[1])["runs"][0]["round"] == 3
        statuses.write(places / "a", statuses.going(round=4))
        until = time.monotonic() + 120
        while json.loads(ask(page)[1])["runs"][0]["round"] != 4:
            assert time.monotonic() < until
            time.sleep(0.1)


@pytest.mark.parametrize("words", [["--page", "--port", "0"], ["--watch"]])
def test_it_is_watched_until_ctrl_c(words, places, interruptible):
    command = [
        sys.executable,
        "-m",
        "fedpn.cli.main",
        "flower",
        "status",
        str(places / "a"),
        *words,
    ]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as watch:
        first = watch.stdout.readline()
        if "--page" in words:
            address = first.split()[0]
            connection = http.client.HTTPConnection(address.split("/")[2], timeout=120)
            connection.request("GET", "/metrics")
            assert b"fedpn_run_round" in connection.getresponse().read()
            connection.close()
        else:
            assert first.startswith("runs/first · digits, fedpn")
            statuses.write(places / "a", statuses.failed())
            while "  failed · " not in first:
                first = watch.stdout.readline()
                assert first
        watch.send_signal(signal.SIGINT)
        assert watch.wait(120) == 0
        assert watch.stderr.read() == ""
