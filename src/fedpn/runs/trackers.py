"""Others who like to hear of each round: TensorBoard and MLflow, behind extras."""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

from fedpn.core.errors import UserError
from fedpn.core.extras import hint, is_here
from fedpn.federated.listener import Listener

Track = Callable[[int, dict[str, float]], object]  # (round, named numbers)
Tracker = Callable[[Path], AbstractContextManager[Track]]  # a run directory -> its track


@contextmanager
def tensorboard(out: Path) -> Iterator[Track]:
    """Writes event files into the run directory: `tensorboard --logdir RUN`."""
    from tensorboardX import SummaryWriter

    with SummaryWriter(str(out / "tensorboard")) as writer:

        def track(round_: int, numbers: dict[str, float]) -> None:
            for name, value in numbers.items():
                writer.add_scalar(name, value, round_)

        yield track


@contextmanager
def mlflow(out: Path) -> Iterator[Track]:
    """Logs to the tracking server of `$MLFLOW_TRACKING_URI`, or into the run directory."""
    import mlflow as service

    if not os.environ.get("MLFLOW_TRACKING_URI"):
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # a folder needs no database
        service.set_tracking_uri((out / "mlruns").resolve().as_uri())
    service.set_experiment("fedpn")
    with service.start_run(run_name=out.name):
        yield lambda round_, numbers: service.log_metrics(numbers, step=round_)


TRACKERS: dict[str, Tracker] = {"tensorboard": tensorboard, "mlflow": mlflow}


class Tracking(Listener):
    """A listener that passes each round's numbers on to a tracker."""

    def __init__(self, tracker: Tracker) -> None:
        self.tracker, self.stack = tracker, ExitStack()

    def begin(self, out: Path) -> None:
        self.track = self.stack.enter_context(self.tracker(out))

    def round(self, number: int, numbers: dict[str, float]) -> None:
        self.track(number, numbers)

    def end(self) -> None:
        self.stack.close()


def find_tracker(name: str) -> Tracking:
    """Takes a tracker from the table, or says how to install what it needs."""
    module = {"tensorboard": "tensorboardX"}.get(name, name)
    if not is_here(module):
        raise UserError(f"--{name} needs {module}: {hint(module)}")
    return Tracking(TRACKERS[name])
