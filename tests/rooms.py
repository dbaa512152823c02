"""The architecture as a table: rooms from the highest to the lowest, and the rows inside each.

What stands in one row stands side by side and never imports each other. `docs/architecture.md` is
held to this table by `test_imports.py`.
"""

ROOMS = """
fedpn_paper
cli
flower · service
runs
reporting
serving
federated
algorithms · routing · nn · data
core
"""

INSIDE = {
    "cli": "main / commands · version · welcome / console · overall · shells / grammar",
    "flower": "doctor · worker / app · deploy / watch / place · status · weigh",
    "service": """
        app · listen / routes / state / worker /
        drift · explain · guard · library · samples · writer /
        body · counters · decisions · decode · evidence · schema / limits
    """,
    "runs": """
        studies / api / defaults · membership · result / pipeline / identity /
        code · directory · figures · glossary · measure · phases · prepare
        / config · evaluate · trackers / settings
    """,
    "reporting": """
        compare_plots · differences · report · sweep_plots /
        clients · gallery · page · pictures / compare · matrices · plots · story · watch /
        charts · tables / classes · table /
        drawing · finished · history / pixels · places · values · words
    """,
    "serving": """
        labelled · onnx · stream / export · predict / card · conform / bundle · inputs / sound
    """,
    "federated": """
        late · privacy · simulator /
        columns · conductor · heads · moments · personal · pool · together · training /
        copies · gate / phase / attack / gather · site /
        aggregation · checkpoint · listener · memories · observer · plausible · settings
    """,
    "algorithms": """
        apfl · ditto · fedrep · fedrod /
        analytic · fedavgm · fedbabu · fedbn · fedper · fedpn · fedprox · local · perfedavg · pfedme
        · scaffold · twin / base
    """,
    "routing": """
        rules · standards / risk_control / pooled / bayes · quantiles · routers / rule · scores /
        opinion · outcomes · settings · thresholds
    """,
    "nn": """
        blueprint / loss · task · two_headed / posterior / density · encoders · familiar /
        kernels · patches · resnet
    """,
    "data": """
        describe · sources /
        batches · census · federation · moments · partition · prepared · recode · shift · subset /
        dataset / recipe · units / cells
    """,
    "core": """
        rows /
        extras · gradient · optim · promises · settings · source · store · task /
        code · tensors /
        aligned · allocator · bounds · dirichlet · errors · gaussian · metrics · noise · pace
        · paired · parallel · plain · products · seeds · summary · tracing · trees
    """,
}


def heights(rows):
    """Each name's height, the lowest row being 0."""
    table = [[name.strip() for name in row.split("·")] for row in rows]
    return {name: len(table) - i for i, row in enumerate(table) for name in row if name}


HEIGHT = heights(ROOMS.strip().splitlines())
WITHIN = {room: heights(text.split("/")) for room, text in INSIDE.items()}
