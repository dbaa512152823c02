"""What Flower costs by itself: seconds of a round in which three nodes do nothing at all.

    python benchmarks/flower_empty.py [TURNS]

Each turn is an empty Flower app (one message a node, no tensors, no PyTorch, Flower's own
SuperNodes, plain, on loopback), then `fedpn flower demo` (three nodes, FedPN on digits, TLS and
node keys). The first round of each is left out, for it warms up.
"""

import json
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from fedpn.core.store import write_toml
from fedpn.flower.deploy import control
from fedpn.flower.deploy.environment import environment, program
from fedpn.flower.deploy.health import answers
from fedpn.flower.deploy.home import Connection, write_home
from fedpn.flower.deploy.processes import Child, free_port
from fedpn.flower.deploy.programs import superlink
from flower import HERE, demo

NODES, ROUNDS, SECONDS = 3, 5, 300.0
APP = {
    "pyproject.toml": """
        [build-system]
        requires = ["hatchling"]
        build-backend = "hatchling.build"
        [project]
        name = "empty"
        version = "1.0.0"
        license = "Apache-2.0"
        dependencies = ["flwr>=1.41,<1.42"]
        [tool.flwr.app]
        publisher = "fedpn"
        [tool.flwr.app.components]
        serverapp = "empty_server:app"
        clientapp = "empty_client:app"
        [tool.flwr.app.config]
        out = ""
    """,
    "empty_client.py": """
        from flwr.app import Message, RecordDict
        from flwr.clientapp import ClientApp
        app = ClientApp()
        @app.train()
        def train(message, context):
            return Message(RecordDict(), reply_to=message)
    """,
    "empty_server.py": f"""
        import json, time
        from pathlib import Path
        from flwr.app import Message, RecordDict
        from flwr.serverapp import ServerApp
        app = ServerApp()
        @app.main()
        def main(grid, context):
            while len(nodes := list(grid.get_node_ids())) < {NODES}:
                time.sleep(1)
            passed = []
            for _ in range({ROUNDS}):
                began = time.monotonic()
                asked = [Message(RecordDict(), dst_node_id=n, message_type="train") for n in nodes]
                replies = list(grid.send_and_receive(asked))
                assert len(replies) == {NODES} and not any(r.has_error() for r in replies)
                passed.append(time.monotonic() - began)
            Path(context.run_config["out"]).write_text(json.dumps(passed))
    """,
}


def empty() -> float:
    """Seconds of a round of the empty app."""
    with tempfile.TemporaryDirectory() as scratch:
        place, out = Path(scratch), Path(scratch) / "seconds.json"
        app = place / "app"
        app.mkdir()
        for name, text in APP.items():
            lines = [line[8:] for line in text.splitlines()]
            (app / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
        connection = Connection(f"127.0.0.1:{free_port()}", None, plain=True)
        home, port = write_home(place / "flower", connection), connection.address.split(":")[1]
        variables, children = environment(home), list[Child]()
        try:
            command = superlink("127.0.0.1", int(port), None, place / "link.db")
            link = Child("superlink", command, variables, place / "link.log")
            children.append(link)
            link.wait_until(lambda: answers(*connection), SECONDS)
            for i in range(NODES):
                words = [program("flower-supernode"), "--insecure", "--port", str(free_port())]
                words += ["--superlink", connection.address]
                children.append(Child(f"node-{i}", words, variables, place / f"node-{i}.log"))
            settings = place / "run.toml"
            write_toml(settings, {"out": str(out)})
            control.start(home, app, settings)
            link.wait_until(out.exists, SECONDS)
            time.sleep(1.0)
            return median(json.loads(out.read_text())[1:])
        finally:
            for child in children:
                child.stop()


def main() -> None:
    for turn in range(int(sys.argv[1]) if len(sys.argv) > 1 else 2):
        print(f"turn {turn + 1}, an empty app: round {empty():.1f}", flush=True)
        found = demo(HERE)
        print(f"turn {turn + 1}, fedpn: round {found['round']:.1f}", flush=True)


if __name__ == "__main__":
    main()
