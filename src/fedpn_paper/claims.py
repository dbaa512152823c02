"""What the paper claims in its tables, and what our results say of it."""

from collections.abc import Callable, Collection, Iterable
from typing import Any

from fedpn_paper import figure_claims
from fedpn_paper.figure import typeset
from fedpn_paper.grid import COLUMNS, PAPER_SETS, RESNET_METHODS, is_small
from fedpn_paper.published import benchmark
from fedpn_paper.results import Duel, Results, Stat, stat
from fedpn_paper.tables import set_title
from fedpn_paper.verdict import SMALL, Verdict, share

Tree = dict[str, Any]
ON_PAR = 2.0  # points
COMPARABLE = 4.0  # points
CLOSE = 1.0  # points
SEPARATES = 0.9  # AUROC
OTHERS = [name for name in COLUMNS if name != "fedpn"]


def verdicts(results: Results, figures: dict[str, Tree]) -> list[Verdict]:
    """All claims, in the order of the paper."""
    small = SMALL if any(map(is_small, results.records)) else ""
    of_tables = [judge(results) for judge in TABLE_CLAIMS]
    of_figures = [figure_claims.judge(name, figures.get(name)) for name in figure_claims.CLAIMS]
    found = [v._replace(why=small + v.why) for v in of_tables] + of_figures
    return [v._replace(why=typeset(v.why)) for v in found]


def _sets(results: Results, *algorithms: str) -> list[str]:
    """The paper's sets on which all of these were run."""
    there = [d for d in PAPER_SETS if all(results.of(d, a) for a in algorithms)]
    return there or [d for d in results.sets() if all(results.of(d, a) for a in algorithms)]


def _list(parts: Iterable[str]) -> str:
    return "; ".join(parts) or "nothing was run"


def _toughest(
    results: Results, dataset: str, split: str, others: Collection[str], who: str = ""
) -> Duel | None:
    """FedPN beside the method that it leads the least."""
    duels = [results.duel(dataset, other, split, who) for other in others]
    return min((d for d in duels if d), key=lambda duel: duel.lead.mean, default=None)


def _with_seeds(results: Results, told: dict[str, tuple[str, Duel]]) -> tuple[str, str]:
    """What is told of duels by set, and the seeds that they are of where FedPN has more."""
    seeds = {}
    for dataset, (_, duel) in told.items():
        names = ", ".join(map(str, duel.seeds))
        word = "seed" if len(duel.seeds) == 1 else "seeds"
        fewer = len(duel.seeds) < len(results.of(dataset, "fedpn"))
        seeds[dataset] = f" ({word} {names}, which both have)" if fewer else ""
    common = next(iter(seeds.values()), "") if len(set(seeds.values())) == 1 else ""
    lines = (line + ("" if common else seeds[name]) for name, (line, _) in told.items())
    return common, _list(lines)


def best_on_mix(results: Results) -> Verdict:
    claim = "On Mix FedPN is the winner by a large margin (Table 2)."
    lines, without, count = [], [], 0
    for dataset in _sets(results, "fedpn"):
        duel = _toughest(results, dataset, "mix", OTHERS)
        alone = duel and results.accuracy(dataset, "fedpn", "mix", who="global", seeds=duel.seeds)
        if duel is None or alone is None:
            continue
        count += 1
        line = (
            f"{set_title(dataset, results)} {duel.ours} (its global model alone {alone}) against "
            f"{duel.theirs} of {COLUMNS[duel.other]}{_fewer_rounds(results, dataset, duel)}"
        )
        normed = results.accuracy(dataset, "fedavg", "mix", "norm", seeds=duel.seeds)
        if normed and normed.mean > duel.theirs.mean:
            line += f" and {normed} of FedAvg with BatchNorm{_alone(normed, duel)}"
        if duel.lead.mean > 0:
            without.append(100 * (alone.mean - duel.theirs.mean) / duel.lead.mean)
        else:
            line += f": {_reason(results, dataset, duel)}"
        lines.append(line)
    why = f"Best on {len(without)} of {count}, each against its toughest rival: {_list(lines)}."
    if without:
        why += (
            f" Where it leads, its global model alone has {min(without):.0f} to "
            f"{max(without):.0f} % of the lead. Budgets were chosen by FedPN's Mix alone, which "
            "may favour it."
        )
    return Verdict(claim, share(len(without), count), why + _with_resnet(results))


def _alone(normed: Stat, duel: Duel) -> str:
    """Says so where a figure is of one seed beside others of several."""
    return " (one seed)" if normed.seeds == 1 < len(duel.seeds) else ""


def _with_resnet(results: Results) -> str:
    """The same with the encoder that the paper names, where it was run."""
    lines = []
    for dataset in results.sets():
        ours, theirs = (
            results.accuracy(dataset, algorithm, "mix", "resnet18") for algorithm in RESNET_METHODS
        )
        if ours and theirs:
            lines.append(f"{set_title(dataset, results)} {ours} against {theirs} of FedAvg")
    return f" With ResNet-18, after 30 rounds, seed 0: {_list(lines)}." if lines else ""


def _fewer_rounds(results: Results, dataset: str, duel: Duel) -> str:
    """Says so where a rival had less training."""
    ours, theirs = (
        min(r["rounds"] for r in results.of(dataset, a) if r["seed"] in duel.seeds)
        for a in ("fedpn", duel.other)
    )
    return f", which had {theirs} rounds of {ours}" if theirs < ours else ""


def _reason(results: Results, dataset: str, duel: Duel) -> str:
    """Looks for why another method is above FedPN."""
    parts = [] if len(duel.seeds) > 1 else ["one seed, which is no proof"]
    reset = results.accuracy(dataset, "fedavg", "mix", "reset", seeds=duel.seeds)
    if duel.other == "fedavg" and reset:
        parts.append(f"FedAvg has {reset} with its momentum reset each round, FedPN was not run so")
    own = {
        who: results.accuracy(dataset, "fedpn", "ind", who=who, seeds=duel.seeds)
        for who in ("local", "global", "switch")
    }
    if all(own.values()):
        parts.append(
            "on InD its local models have {local}, its global one {global}, the switch {switch}: "
            "of the rows that the local models alone get right, it delegates most".format(**own)
        )
    return ", ".join(parts)


def best_on_ood(results: Results) -> Verdict:
    claim = "On OOD FedPN is superior (appendix B.3, Table 6)."
    told, good, count = {}, 0, 0
    for dataset in _sets(results, "fedpn"):
        duel = _toughest(results, dataset, "ood", OTHERS)
        if duel is None:
            continue
        count, good = count + 1, good + (duel.lead.mean > 0)
        against = f"{duel.theirs} of {COLUMNS[duel.other]}"
        told[dataset] = f"{set_title(dataset, results)} {duel.ours} against {against}", duel
    seeds, lines = _with_seeds(results, told)
    why = f"Best on {good} of {count}, each against its toughest rival{seeds}: {lines}."
    return Verdict(claim, share(good, count), why)


def switch_beats_both(results: Results) -> Verdict:
    claim = "Switching beats both the local and the global model used alone (conclusion)."
    sets = _sets(results, "fedpn")
    lines, plain, clear, above = [], [], 0, 0
    for dataset in sets:
        lead = stat([_lead(record["accuracy"]) for record in results.of(dataset, "fedpn")])
        gap = results.routing(dataset, "gap_closed")
        clear, above = clear + lead.is_clear, above + (lead.mean > 0.05)
        of_gap = "" if gap is None else f", {100 * gap.mean:.0f} % of the oracle's gain"
        lines.append(f"{set_title(dataset, results)} {lead.signed}{of_gap}")
        plain += [
            f"{set_title(dataset, results)} {stat([_lead(record['accuracy'])]).signed}"
            for record in _papers_switch(results, dataset)
        ]
    why = (
        f"On Mix, against the better of the two: above on {above} of {len(sets)} sets, and beyond "
        f"what chance among seeds gives (t-test, one-sided 5 %) on {clear}: {_list(lines)}. Score "
        "and share of delegated rows were chosen for each set by Mix on held-out rows, which asks "
        f"for labelled foreign rows; with log density at 10 %, as the paper has it, seed 0 alone: "
        f"{_list(plain)}."
    )
    deep = [
        f"{set_title(d, results)} {stat([_lead(record['accuracy'])]).signed}"
        for d in sets
        for record in results.of(d, "fedpn", "resnet18")
    ]
    if deep:
        why += f" With ResNet-18, after 30 rounds, seed 0: {_list(deep)}."
    return Verdict(claim, share(clear, len(sets)), why)


def _lead(accuracy: Tree) -> float:
    """What the switch has over the better of its two models, in points on Mix."""
    mix = {who: 100 * float(row["mix"]) for who, row in accuracy.items()}
    return mix["switch"] - max(mix["local"], mix["global"])


def _papers_switch(results: Results, dataset: str) -> list[Tree]:
    """The record of seed 0 whose switch is by log density at 10 %."""
    for variant in ("density10", ""):
        for record in results.of(dataset, "fedpn", variant):
            settings = record["settings"]
            router = settings.get("routing.router", "log_density")
            usual = router == "log_density" and settings.get("routing.outliers", 0.1) == 0.1
            if record["seed"] == 0 and usual:
                return [record]
    return []


def density_orders(results: Results) -> Verdict:
    claim = "The flow's density is high for known and low for unknown inputs."
    lines, good, count = [], 0, 0
    for dataset in _sets(results, "fedpn"):
        plain = results.of(dataset, "fedpn")[0]["routing"]["score"] == "log_density"
        auroc = results.routing(dataset, "auroc", variant="" if plain else "density10")
        if auroc is None:
            continue
        count += 1
        good += auroc.mean >= SEPARATES
        seeds = f"{auroc.seeds} seeds" if auroc.seeds > 1 else "1 seed"
        lines.append(f"{set_title(dataset, results)} {auroc.mean:.3f} ({seeds})")
    why = (
        f"AUROC of the local log density, InD against OOD; {SEPARATES} or more on {good} of "
        f"{count}: {_list(lines)}."
    )
    return Verdict(claim, share(good, count), why)


def switch_on_ind(results: Results) -> Verdict:
    claim = "With its switch, FedPN's InD accuracy is comparable to its competitors' (Table 2)."
    return _near_the_best(results, claim, OTHERS, "", COMPARABLE)


def local_on_par(results: Results) -> Verdict:
    claim = "Where inputs are known to be InD, FedPN's local models are on par (Table 3)."
    return _near_the_best(results, claim, ["local", *OTHERS], "local", ON_PAR)


def _near_the_best(
    results: Results, claim: str, others: Collection[str], who: str, slack: float
) -> Verdict:
    told, good, count = {}, 0, 0
    for dataset in _sets(results, "fedpn"):
        duel = _toughest(results, dataset, "ind", others, who)
        if duel is None:
            continue
        count, good = count + 1, good + (duel.lead.mean >= -slack)
        best = f"{duel.theirs} of {COLUMNS.get(duel.other, 'Local')}"
        told[dataset] = f"{set_title(dataset, results)} {duel.ours} against {best}", duel
    seeds, lines = _with_seeds(results, told)
    why = (
        f"No more than {slack:g} points below its toughest rival on InD on {good} of {count}"
        f"{seeds}: {lines}."
    )
    return Verdict(claim, share(good, count), why)


def personal_heads_know_nothing_else(results: Results) -> Verdict:
    claim = "FedRep has an OOD accuracy of 0.0 everywhere (Table 6)."
    sets = _sets(results, "fedrep", "fedper")
    lines, good = [], 0
    for dataset in sets:
        rep, per = (results.accuracy(dataset, a, "ood") for a in ("fedrep", "fedper"))
        assert rep and per
        good += rep.mean < 0.05
        lines.append(f"{set_title(dataset, results)} {rep}, FedPer {per}")
    why = (
        f"0.0 on {good} of {len(sets)}: {_list(lines)}. A head that has only seen its client's "
        "classes never names another; FedPer keeps its heads at home as well, and the paper's "
        "29.4 on MNIST for it is not explained by the method."
    )
    return Verdict(claim, share(good, len(sets)), why)


def reaches_the_figures(results: Results) -> Verdict:
    claim = "FedPN's accuracy on Mix is at least the paper's (Table 2)."
    sets = [d for d in PAPER_SETS if results.of(d, "fedpn")]
    lines, good = [], 0
    for dataset in sets:
        ours, paper = results.accuracy(dataset, "fedpn", "mix"), benchmark(dataset, "fedpn", "mix")
        assert ours and paper is not None
        good += ours.mean >= paper - CLOSE
        lines.append(f"{set_title(dataset, results)} {ours}, the paper's {paper}")
    missing = [PAPER_SETS[d] for d in PAPER_SETS if d not in sets]
    why = f"No more than {CLOSE:g} point below on {good} of {len(sets)}: {_list(lines)}."
    if missing:
        why += f" Not run: {', '.join(missing)}."
    return Verdict(claim, share(good, len(sets)), why)


TABLE_CLAIMS: tuple[Callable[[Results], Verdict], ...] = (
    best_on_mix,
    best_on_ood,
    switch_beats_both,
    density_orders,
    switch_on_ind,
    local_on_par,
    personal_heads_know_nothing_else,
    reaches_the_figures,
)
