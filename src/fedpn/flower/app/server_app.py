"""Flower's ServerApp: conducts the run, and tells of it in lines that `fedpn flower run` reads."""

import json
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    from fedpn.core.errors import UserError
    from fedpn.flower.app.server import serve
    from fedpn.flower.app.terms import read_terms

    try:
        serve(grid, read_terms(context.run_config), tell)
    except UserError as error:
        tell({"error": str(error), "status": 2})
        raise
    except Exception as error:
        tell({"error": f"{error}" or type(error).__name__, "status": 1})
        raise


def tell(event: dict[str, Any]) -> None:
    """Says what happened, in one line."""
    print(f"fedpn-event: {json.dumps(event, ensure_ascii=False)}", flush=True)
