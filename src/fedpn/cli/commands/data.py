"""fedpn data: the sets at hand, how they would be dealt, whether one's own will do."""

import argparse
from pathlib import Path
from typing import Any

from fedpn.cli.commands.command import command
from fedpn.core.errors import UserError


def add(commands: Any) -> None:
    parser = commands.add_parser("data", help="list, fetch, show and check data")
    family = parser.add_subparsers(metavar="COMMAND", required=True)
    command(family, "list", _list, "list the named sets: where found, rows, classes, licence")
    get = command(family, "get", _get, "fetch named sets from their publishers")
    get.add_argument("names", nargs="+", metavar="NAME")
    show = command(family, "show", _show, "show how data would be dealt: a table and a picture")
    show.add_argument("spec", metavar="SPEC", help="a named set, or a path to your own")
    show.add_argument("--clients", help="how many clients")
    show.add_argument("--seed", help="of the dealing")
    show.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    show.add_argument("--out", type=Path, help="the picture, .png or .html")
    check = command(family, "check", _check, "validate your own data and tell what would be done")
    check.add_argument("path", type=Path, metavar="PATH")
    check.add_argument("--label", help="of a table, the column of labels")
    check.add_argument("--client", help="of a table, the column of owners")
    check.add_argument("--image-size", type=int, help="the side to which images are resized")
    check.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="as `fedpn run` takes them"
    )


def _list(options: argparse.Namespace) -> None:
    from fedpn.core.aligned import aligned
    from fedpn.data.sources.catalogue import catalogue

    rows = [("name", "rows", "classes", "size", "where", "licence")]
    entries = catalogue()
    rows += [
        (e.name, str(e.rows or "–"), str(e.classes or "–"), e.size or "–", e.where, e.licence)
        for e in entries
    ]
    print("\n".join(aligned(rows, texts=len(rows[0]))))
    for entry in entries:
        if entry.note:
            print(f"\n{entry.name}: {entry.note}", end="")
    print()


def _get(options: argparse.Namespace) -> None:
    from fedpn.data.sources.datasets import BUILT_IN, get

    for name in options.names:
        print(f"{name}: {'built in' if name in BUILT_IN else get(name)}")


def _show(options: argparse.Namespace) -> None:
    from fedpn.core.settings import parse_setting
    from fedpn.data.describe import describe
    from fedpn.runs.config import resolve
    from fedpn.runs.prepare import deal

    flags = {name: getattr(options, name) for name in ("clients", "seed")}
    layers = [{"dataset": options.spec}]
    layers += [
        parse_setting(f"{name}={value}") for name, value in flags.items() if value is not None
    ]
    layers += [parse_setting(text) for text in options.set]
    dataset, federation = deal(resolve(layers))
    print(describe(dataset, federation))
    if options.out is not None:
        _picture(options.out, dataset, federation)
        print(f"\npicture: {options.out}")


def _picture(path: Path, dataset: Any, federation: Any) -> None:
    import base64
    import html

    from fedpn.core.store import write_text
    from fedpn.data.describe import describe
    from fedpn.reporting.gallery import bubbles, bubbles_png

    if path.suffix == ".png":
        bubbles(dataset, federation, path)
    elif path.suffix == ".html":
        picture = base64.b64encode(bubbles_png(dataset, federation)).decode()
        write_text(
            path,
            f"<!doctype html><meta charset=utf-8><title>{html.escape(dataset.name)}</title>"
            "<body style='font: 15px system-ui; max-width: 1100px; margin: 2em auto'>"
            f"<img style='max-width: 100%' src='data:image/png;base64,{picture}'>"
            f"<pre>{html.escape(describe(dataset, federation))}</pre>",
        )
    else:
        raise UserError(f"--out {path}: the name must end in .png or .html")


def _check(options: argparse.Namespace) -> None:
    from fedpn.core.settings import parse_setting
    from fedpn.data.sources.check import tell
    from fedpn.data.sources.datasets import names
    from fedpn.data.sources.own import load_own
    from fedpn.runs.config import resolve
    from fedpn.runs.prepare import check_calibration, deal

    if str(options.path) in names() and not options.path.exists():
        raise UserError(f"{options.path} is a named set; see `fedpn data show {options.path}`")
    columns = {"label": options.label, "client": options.client, "image_size": options.image_size}
    data = {name: value for name, value in columns.items() if value is not None}
    layers = [{"dataset": str(options.path.resolve()), "data": data}]
    config = resolve([*layers, *map(parse_setting, options.set)])
    read = load_own(options.path, config.data.image_size or None, config.data.wanted())
    print("\n".join(tell(options.path, read, config.data.categories)))
    try:
        dataset, federation = deal(config, read)
        check_calibration(config, dataset, federation, range(federation.clients))
    except UserError as error:
        print(f"`fedpn run` would refuse them as it is set: {error}")
    else:
        print(f"`fedpn run` takes them as it is set, with {federation.clients} clients")
