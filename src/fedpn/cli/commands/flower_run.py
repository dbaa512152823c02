"""fedpn flower run and fedpn flower demo: a config on a SuperLink and its nodes."""

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedpn.cli.commands.command import command
from fedpn.cli.commands.options import TRUST, named_values
from fedpn.core.errors import UserError
from fedpn.flower.deploy.interrupts import interruptible, whole

if TYPE_CHECKING:
    from fedpn.cli.console import Display
    from fedpn.runs.config import Config

Do = Callable[[argparse.Namespace], int | None]
# A round is dear here, its steps are not; after so few a small head in closed form answers best.
DEMO = (
    *("train.steps=60", "train.batch=32"),
    *("head.kind=ridge", "head.features=encoder", "head.fourier=0"),
)


def add(family: Any) -> None:
    _add_run(family)
    _add_demo(family)


def told(do: Do) -> Do:
    """Tells what Flower failed to do as one of ours."""

    def told(options: argparse.Namespace) -> int | None:
        from fedpn.flower.deploy.processes import Failure

        try:
            return do(options)
        except Failure as failure:
            if options.debug:
                raise
            print(f"fedpn: {failure}", file=sys.stderr)
            return 1

    return told


def say(text: str) -> None:
    print(f"fedpn: {text}", file=sys.stderr, flush=True)


def add_connection(option: Any) -> None:
    option("--superlink", required=True, metavar="HOST:PORT", help="or its name, as flwr knows it")
    option("--ca", type=Path, metavar="FILE", help="the authority that signed its certificate")


def _add_run(family: Any) -> None:
    text = "run a config on a SuperLink and its nodes"
    option = command(family, "run", told(_run), text).add_argument
    option("config", type=Path, metavar="CONFIG.toml", help="settings, those of fedpn run")
    add_connection(option)
    option("--out", type=Path, required=True, help="the run directory, on the SuperLink's machine")
    option("--resume", action="store_true", help="go on with the run in --out")
    option("--nodes", type=int, metavar="N", help="how many take part (default: clients)")
    option("--timeout", type=float, default=300.0, metavar="SECONDS", help="to wait for nodes")
    option("--round-timeout", type=float, default=600.0, metavar="SECONDS", help="for one round")
    option("--secure", action="store_true", help="mask uploads: the server sees only their sum")
    option(
        "--base",
        type=Path,
        metavar="RUN",
        help="a finished run, on the SuperLink's machine: nodes that are new to it join it",
    )
    option("--forget", default="", metavar="NODE", help="with --base: this node leaves it instead")
    option("--logs", action="store_true", help="show all that the server says")
    option("--set", action="append", default=[], metavar="KEY=VALUE")
    option("--trust", action="store_true", help=TRUST)


@interruptible()
def _run(options: argparse.Namespace) -> int:
    from fedpn.core.settings import need_trust, parse_setting, read_toml
    from fedpn.flower.deploy import health, home, launch
    from fedpn.runs.config import resolve

    file, typed = read_toml(options.config), [parse_setting(text) for text in options.set]
    need_trust(file, options.config, options.trust, named_values(typed))
    config = resolve([file, *typed])
    connection = home.find(options.superlink, options.ca)
    if not connection.here and not options.out.is_absolute():
        raise UserError(
            f"--out {options.out} is a place on the SuperLink's machine: give an absolute path"
        )
    order = _order(config, options)
    health.check(connection.address, connection.ca, connection.plain)
    with tempfile.TemporaryDirectory() as scratch:
        place = home.write_home(Path(scratch) / "flower", connection)
        app, modules = launch.make_app(options.config, Path(scratch))
        if modules:
            say(f"{', '.join(modules)} travels with the run to all nodes")
        status = _follow(place, app, order, options.logs)
    if status == 0:
        if connection.here:
            _table(Path(order.out))
        print(f"report: {order.out}/report.html")
    else:
        say(order.again)
    return status


def _order(config: "Config", options: argparse.Namespace) -> Any:
    from fedpn.flower.deploy.launch import Order

    nodes = config.clients if options.nodes is None else options.nodes
    for name, value in (
        ("nodes", nodes),
        ("timeout", options.timeout),
        ("round-timeout", options.round_timeout),
    ):
        if not 0 < value < float("inf"):
            raise UserError(f"--{name} is {value}, but must be above 0")
    out = str(options.out.absolute())
    return Order(
        config=config,
        out=out,
        resume=options.resume,
        nodes=nodes,
        timeout=options.timeout,
        round_timeout=options.round_timeout,
        secure=options.secure,
        base="" if options.base is None else str(options.base.absolute()),
        leaves=options.forget,
    )


def _follow(home: Path, app: Path, order: Any, logs: bool) -> int:
    """Submits a run and shows it to its end; Ctrl-C stops it."""
    from fedpn.cli.console import Display
    from fedpn.flower.deploy import control, launch

    run = ""
    with Display() as display:
        try:
            with whole():  # a run that was submitted has a number to be stopped by
                run = launch.submit(home, app, order)
            log = display.say if logs else lambda line: None
            launch.follow(home, run, _hear(display), log, order.again)
        except KeyboardInterrupt:
            if run:
                display.say("stopping the run")
                control.stop(home, run)
            print("stopped", file=sys.stderr)
            return 130
    return 0


def _hear(display: "Display") -> Callable[[dict[str, Any]], None]:
    """Shows a run's events."""
    from fedpn.cli.console import STAGES

    def hear(event: dict[str, Any]) -> None:
        stage, done, of = event.pop("stage", None), event.pop("done", 0), event.pop("of", 1)
        if stage in STAGES:
            facts = {k: v for k, v in event.items() if isinstance(v, int | float)}
            display.progress(stage, done, of, **facts)
        elif stage == "wait":
            display.say(f"waiting for {of} nodes")
        elif event.get("phase") not in (None, *STAGES):  # nothing else would be seen of it
            display.say(f"sums over all nodes: {event['phase']}")
        elif "warning" in event:
            display.say(str(event["warning"]))

    return hear


def _table(out: Path) -> None:
    """Prints the table of a run on this machine."""
    from fedpn.reporting import report

    if (out / "metrics.json").exists():
        print(f"\n{report.text([out])}\n")


def _add_demo(family: Any) -> None:
    text = "start a whole federation here, run it on digits, take it down: about a minute"
    option = command(family, "demo", told(_demo), text).add_argument
    option("--nodes", type=int, default=3, help="(default: 3)")
    option("--rounds", type=int, default=3, help="(default: 3)")
    option("--secure", action="store_true", help="mask uploads: the server sees only their sum")
    option("--keep", type=Path, metavar="DIR", help="keep certificates, logs, nodes and the run")
    option("--logs", action="store_true", help="show all that the server says")


def _demo_config(options: argparse.Namespace) -> "Config":
    from fedpn.core.settings import parse_setting
    from fedpn.runs.config import resolve

    chosen = {"dataset": "digits", "clients": options.nodes, "rounds": options.rounds}
    return resolve([*(parse_setting(text) for text in DEMO), chosen])


@interruptible()
def _demo(options: argparse.Namespace) -> int:
    from fedpn.flower.deploy.demo import Federation
    from fedpn.flower.deploy.launch import Order, write_app
    from fedpn.flower.place import fresh

    if options.nodes < 1 or options.rounds < 0:
        raise UserError("a demo has at least one node, and no fewer than no rounds")

    with tempfile.TemporaryDirectory(prefix="fedpn-demo-") as scratch:
        place = fresh(options.keep or Path(scratch)).absolute()
        (place / "app").mkdir()
        write_app(place / "app")
        say(f"certificates, a SuperLink and {options.nodes} nodes in {place}")
        with Federation(place, options.nodes) as federation:
            config = _demo_config(options)  # which takes seconds, while others start
            home, out = federation.open(), str(place / "run")
            order = Order(config, out, False, options.nodes, 120.0, 120.0, options.secure)
            status = _follow(home, place / "app", order, options.logs)
        if status == 0:
            _table(place / "run")
        if options.keep is None:
            print("nothing is kept; --keep DIR keeps certificates, logs, nodes and the run")
        else:
            print(f"kept: {place} (a node answers: fedpn predict {place}/node-0 INPUT)")
    return status
