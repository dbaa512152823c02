"""What pytest is asked to do for mutants: learn which tests run which lines, then play some."""

import json
import signal
import time
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import coverage
import pytest

PATIENCE = 60  # seconds that a test may take that took none before


class Chosen:
    """Plays chosen tests in their order, and writes down which one failed."""

    def __init__(self, tests: dict[str, float], report: Path) -> None:
        self.order, self.tests, self.report = {t: i for i, t in enumerate(tests)}, tests, report
        signal.alarm(PATIENCE)

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items[:] = sorted(
            (item for item in items if item.nodeid in self.order),
            key=lambda item: self.order[item.nodeid],
        )

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        signal.alarm(PATIENCE + int(10 * self.tests[nodeid]))

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self.report.write_text(report.nodeid)


class Survey:
    """Learns which tests run which lines; all of a file run what is run as modules are loaded, and
    all that use a shared fixture what it runs."""

    def __init__(self, modules: Sequence[Path], report: Path) -> None:
        self.modules, self.report, self.inside = modules, report, [""]
        self.used: dict[str, list[str]] = {}
        self.seconds: dict[str, float] = {}
        paths = [str(path) for path in modules]
        self.coverage = coverage.Coverage(data_file=None, config_file=False, include=paths)
        self.coverage.set_option("run:disable_warnings", ["no-data-collected"])
        self.coverage.start()

    def _within(self, name: str) -> Generator[None, Any, Any]:
        self.inside.append(name)
        self.coverage.switch_context(name)
        try:
            return (yield)
        finally:
            self.inside.pop()
            self.coverage.switch_context(self.inside[-1])

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: Any) -> Any:
        began = time.process_time()
        self.used[item.nodeid] = ["", item.nodeid, *getattr(item, "fixturenames", ())]
        result = yield from self._within(item.nodeid)
        self.seconds[item.nodeid] = time.process_time() - began
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Any:
        own = fixturedef.scope == "function"
        return (yield from self._within(self.inside[-1] if own else fixturedef.argname))

    def pytest_sessionfinish(self) -> None:
        self.coverage.stop()
        lines: dict[str, dict[str, list[int]]] = {}
        for path in self.modules:
            by: dict[str, set[int]] = {}
            for line, names in self.coverage.get_data().contexts_by_lineno(str(path)).items():
                for name in names:
                    by.setdefault(name, set()).add(line)
            ran = {t: set().union(*(by.get(n, ()) for n in used)) for t, used in self.used.items()}
            for test, found in ran.items():
                lines.setdefault(test, {})[str(path)] = sorted(found)
        seen = {t: {"seconds": self.seconds[t], "lines": lines[t]} for t in self.used}
        self.report.write_text(json.dumps(seen))
