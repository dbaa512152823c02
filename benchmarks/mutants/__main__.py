"""Mutation testing: small mistakes, one at a time, in the modules that decide; do tests notice?

    FEDPN_DATA=… python benchmarks/mutants [--only routing/bayes.py] [--most 150] [--fresh]

First the tests run once, to learn which of them run which lines. Then each mutant is played in a
child of this process, which has PyTorch loaded already, against the tests that run the changed
line, those of its own room if there are any, for some `BUDGET` seconds or until one fails. A
test that does not end is a failure. What was found is kept in runs/mutants and not sought again
while the module is the same; survivors are tried again whenever tests have changed. Mutants that
change nothing that can be told are named in equivalent.toml, with why.
"""

import argparse
import hashlib
import importlib
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import tomllib
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib.machinery import SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import torch
from changes import UNCHANGED, Mutant, mutants_of, mutated
from plugins import Chosen, Survey

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
HOME = ROOT / "src" / "fedpn"
FOUND, SURVEY = (ROOT / "runs" / "mutants" / f"{name}.json" for name in ("found", "survey"))
RESULT = ROOT / "results" / "mutants.json"
MODULES = [
    "core/dirichlet.py",
    "core/store.py",
    *sorted(f"routing/{p.name}" for p in (HOME / "routing").glob("*.py")),
    "federated/conductor.py",
]
TESTS = [
    *(
        path
        for room in ("core", "routing", "federated")
        for path in ROOT.glob(f"tests/{room}/*.py")
    ),
    *(ROOT / "tests" / "serving" / f"test_{name}.py" for name in ("labelled", "stream")),
    *(HOME / module for module in MODULES),
]
BUDGET = 3.0  # seconds of a core for a mutant
MEMORY = 16 << 30
NOT_LOADED = 70
HEAVY = ["mpmath", "doctest", "pdb", "safetensors.torch", "scipy.stats", "torch.distributed.tensor"]
HEAVY += ["sklearn.datasets", "sklearn.linear_model", "matplotlib.figure", "jinja2", "PIL.Image"]


class Finder:
    """Has Python load a module as it is after the change."""

    def __init__(self, module: str, number: tuple[int, int]) -> None:
        self.name = "fedpn." + module.removesuffix(".py").replace("/", ".")
        self.name, self.path = self.name.removesuffix(".__init__"), HOME / module
        self.code = compile(mutated(self.path.read_text(), number), self.path, "exec")
        self.used = False

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name != self.name:
            return None
        self.used = True
        loader = SourceFileLoader(name, str(self.path))
        loader.get_code = lambda _: self.code  # type: ignore[method-assign]
        return spec_from_file_location(name, self.path, loader=loader)


def in_child(args: list[str], plugin: Callable[[Path], Any], finder: Finder | None = None) -> Any:
    """Runs pytest in a child; returns how it ended, and what the plugin wrote."""
    folder = Path(tempfile.mkdtemp(prefix="mutant-"))
    child = os.fork()
    if child == 0:
        code = NOT_LOADED
        try:
            os.setsid()
            os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT)
            os.dup2(log, 1)
            os.dup2(log, 2)
            sys.meta_path[:0] = [finder] if finder else []  # type: ignore[list-item]
            plain = ["-x", "--assert=plain", "-p", "no:cacheprovider"]
            base = f"--basetemp={folder / 'tests'}"
            code = int(pytest.main([*args, *plain, base], [plugin(folder / "report")]))
            if finder and not finder.used:
                code = NOT_LOADED
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # what a test has started
    report = folder / "report"
    told = report.read_text() if report.exists() else ""
    log = (folder / "log").read_text(errors="replace")
    shutil.rmtree(folder, ignore_errors=True)
    return status, told, log


def survey() -> dict[str, Any]:
    """Which tests of a file run which lines, in how many seconds; learned where files changed."""
    known, common = read(SURVEY), [*ROOT.glob("tests/*.py"), *(HOME / m for m in MODULES)]
    for path in sorted(TESTS):
        name, state = str(path.relative_to(ROOT)), digest(path, *sorted(common))
        if known.get(name, {}).get("state") != state:
            print(name, flush=True)
            plugin = partial(Survey, [HOME / module for module in MODULES])
            status, told, log = in_child([name, "-m", "not slow"], plugin)
            if status not in (0, 5):
                sys.exit(f"tests fail without any change:\n{log[-3000:]}")
            known[name] = {"state": state, "tests": json.loads(told)}
            write(SURVEY, known)
    return known


def choose(module: str, mutant: Mutant, known: dict[str, Any]) -> dict[str, float]:
    """Tests that run the changed line, of the module's room if any do, the quickest first."""
    near, path, room = {}, str(HOME / module), module.partition("/")[0]
    for file in known.values():
        always = mutant.always and any(seen["lines"][path] for seen in file["tests"].values())
        for test, seen in file["tests"].items():
            if always or set(seen["lines"][path]) & set(mutant.lines):
                near[test] = seen["seconds"]
    at_home = {test: seconds for test, seconds in near.items() if f"/{room}/" in test}
    chosen, spent = {}, 0.0
    for test, seconds in sorted((at_home or near).items(), key=lambda pair: pair[1]):
        spent += seconds
        if spent <= BUDGET or not chosen:
            chosen[test] = seconds
    return chosen


def try_one(module: str, mutant: Mutant, chosen: dict[str, float]) -> dict[str, Any]:
    """Plays tests of one file first, as most mutants need no more, and files take time to load."""
    if not chosen:
        return {"end": "survived", "by": "no test runs it"}
    finder, file_of = Finder(module, mutant.number), {t: t.partition("::")[0] for t in chosen}
    first = Counter(file_of.values()).most_common(1)[0][0]
    for files in filter(None, ({first}, set(file_of.values()) - {first})):
        tests = {test: seconds for test, seconds in chosen.items() if file_of[test] in files}
        status, told, log = in_child(sorted(files), partial(Chosen, tests), finder)
        if status in (5, NOT_LOADED):
            sys.exit(f"{module}, {mutant.name}: no tests are played\n{log[-3000:]}")
        if status != 0:
            why = told or ("time" if status < 0 else "an error while loading")
            return {"end": "killed", "by": why}
    return {"end": "survived", "by": f"{len(chosen)} tests pass"}


def summary(state: dict[str, Any], whys: dict[str, dict[str, str]]) -> dict[str, Any]:
    """Counts for each module, and the survivors by name."""
    table = {}
    for module in (name for name in MODULES if state.get(name, {}).get("mutants")):
        why, tried = whys.get(module, {}), state[module]["tried"]
        alive = [(name, e["line"]) for name, e in tried.items() if e["end"] == "survived"]
        killed = len(tried) - len(alive)
        table[module] = {
            "mutants": state[module]["mutants"],
            "tried": len(tried),
            "killed": killed,
            "killed_share": round(killed / max(len(tried), 1), 3),
            "survived": [{"line": n, "change": c} for c, n in alive if c not in why],
            "equivalent": [{"line": n, "change": c, "why": why[c]} for c, n in alive if c in why],
        }
    whole = {key: sum(row[key] for row in table.values()) for key in ("mutants", "tried", "killed")}
    return {"all": whole, "modules": table}


def digest(*paths: Path) -> str:
    return hashlib.sha256(b"".join(p.read_bytes() for p in paths)).hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="*", default=MODULES, help="modules, as room/name.py")
    parser.add_argument("--most", type=int, default=10**6, help="mutants of a module, drawn")
    parser.add_argument("--fresh", action="store_true", help="forget what was found before")
    options = parser.parse_args()
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT / "src"))
    torch.set_num_threads(1)
    for name in HEAVY:
        importlib.import_module(name)
    quick = (hypothesis.Phase.explicit, hypothesis.Phase.generate)  # no search for small examples
    fixed = {"derandomize": True, "database": None, "deadline": None, "phases": quick}
    hypothesis.settings.register_profile("mutants", **fixed)
    hypothesis.settings.load_profile("mutants")
    state = {} if options.fresh else read(FOUND)
    known, whys = survey(), tomllib.loads((HERE / "equivalent.toml").read_text())
    for module in options.only:
        source, all_ = digest(HOME / module), mutants_of((HOME / module).read_text())
        if state.get(module, {}).get("source") != source:
            state[module] = {"source": source, "mutants": len(all_), "tried": {}}
        names = {mutant.name for mutant in all_}
        tried = {name: end for name, end in state[module]["tried"].items() if name in names}
        state[module] |= {"mutants": len(all_), "tried": tried}
        drawn = random.Random(0).sample(all_, min(options.most, len(all_)))
        todo = {}
        for mutant in sorted(drawn, key=lambda m: m.number):
            before, chosen = tried.get(mutant.name, {}), choose(module, mutant, known)
            files = {test.partition("::")[0] for test in chosen}
            tests = " ".join(sorted(known[file]["state"][:8] for file in files))
            if before.get("end") != "killed" and before.get("tests") != tests:
                todo[mutant] = chosen, tests
        needed = {t: seconds for chosen, _ in todo.values() for t, seconds in chosen.items()}
        same = try_one(module, UNCHANGED, needed)
        if same["end"] == "killed":
            sys.exit(f"{module}: {same['by']} fails without any change")
        for mutant, (chosen, tests) in todo.items():
            found = try_one(module, mutant, chosen)
            tried[mutant.name] = {"line": mutant.line, "tests": tests} | found
            print(f"{module}:{mutant.line} {mutant.name}: {found}", flush=True)
            write(FOUND, state)
        write(RESULT, summary(state, whys))


def read(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text())) if path.exists() else {}


def write(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = path.with_suffix(".part")
    whole.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n")
    whole.replace(path)


if __name__ == "__main__":
    main()
