"""How a run or a node stands: what its file says, and whether there is still somebody to say it."""

import os

from fedpn.flower.watch.status import Run, Site, Unreadable
from fedpn.flower.watch.words import duration

RUN_STATES = ("running", "silent", "gone", "finished", "failed", "stopped")
SITE_STATES = ("ready", "busy", "starting", "waiting", "refused", "ended", "silent", "gone")
WRONG = ("gone", "failed", "refused")  # what somebody must do something about
SILENT = 300.0  # seconds without a word; a round may take some minutes


def state_of(item: Run | Site, now: float) -> str:
    """One word of `RUN_STATES`, or of `SITE_STATES`."""
    return _run_state(item, now) if isinstance(item, Run) else _site_state(item, now)


def _run_state(run: Run, now: float) -> str:
    if run.ended is not None:
        return next((s for s in ("finished", "stopped") if run.ended.startswith(s)), "failed")
    return _quiet(run, now) or "running"


def _site_state(site: Site, now: float) -> str:
    """A node that is not connected is first of all that."""
    link = site.link.state if site.link else None
    if link in ("waiting", "refused", "ended"):
        return link
    if site.worker == "gone":
        return "gone"
    idle = site.worker == "ready"  # it has nothing to tell between runs
    return _quiet(site, now, forever=idle) or site.worker or "starting"


def _quiet(item: Run | Site, now: float, forever: bool = False) -> str | None:
    if item.pid is not None and not runs(item.pid):
        return "gone"
    silent = item.updated is not None and now - item.updated > SILENT
    return "silent" if silent and not forever else None


def runs(pid: int) -> bool:
    """Whether a process of this machine runs."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def note(item: Run | Site, now: float) -> str:
    """A sentence on the state, where there is more to say than the word."""
    state = state_of(item, now)
    if state == "gone" and item.pid is not None and not runs(item.pid):
        return f"its process {item.pid} is not there any more" + (
            ": go on with fedpn flower run … --resume" if isinstance(item, Run) else ""
        )
    if state == "silent" and item.updated is not None:
        return f"it has said nothing for {duration(now - item.updated)}"
    if isinstance(item, Run):
        return (item.ended or "").removeprefix("failed: ") if state == "failed" else ""
    return (item.link.why or "") if item.link and item.link.state != "connected" else ""


def is_wrong(item: Run | Site | Unreadable, now: float) -> bool:
    """Whether somebody must do something."""
    return isinstance(item, Unreadable) or state_of(item, now) in WRONG
