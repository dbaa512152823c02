"""The uploads of a turn at the border: each by itself, then each beside those of the others."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from fedpn.core.trees import Slots, is_wide, map_slots
from fedpn.federated import plausible
from fedpn.federated.gather import Gatherer
from fedpn.federated.phase import Phase
from fedpn.flower.app.roster import LONGEST, Reply
from fedpn.flower.app.uploads import Refused, form_of, most_common, read_upload

TOO_LARGE = "uploaded what cannot be beside what the others did: it is far larger"
COUNTED = 1000.0  # by which a client may always move a count, whatever the others did


@dataclass(frozen=True)
class Reading:
    """What is known of a turn when its uploads come."""

    phase: Phase
    sent: Slots
    rows: Mapping[int, int]  # that each node told at first
    gatherer: Gatherer

    def read(
        self, replies: Mapping[int, Reply], form: Slots | None
    ) -> tuple[dict[int, Slots], dict[int, str]]:
        """The uploads that count, and why others do not.

        Of sums nobody knows the form beforehand: that of most is held to.
        """
        if form is None:
            form = most_common(form_of(reply.content) for reply in replies.values())
        uploads: dict[int, Slots] = {}
        refused: dict[int, str] = {}
        for number, reply in replies.items():
            try:
                uploads[number] = self._upload(reply, form, self.rows[number])
            except Refused as error:
                refused[number] = str(error)
        weights = {number: replies[number].report.weight for number in uploads}
        for number in self._absurd(uploads, weights):
            del uploads[number]
            refused[number] = TOO_LARGE
        return uploads, refused

    def _upload(self, reply: Reply, form: Slots | None, rows: int) -> Slots:
        """A node's upload, or why it does not count."""
        report = reply.report
        if report.error:
            raise Refused(f"failed: {report.error[:LONGEST]}")
        upload = read_upload(reply.content, form)
        weight = 1.0 if self.phase.remembers else report.weight
        if not plausible.may_weigh(weight, rows):
            raise Refused(f"uploaded what cannot be: its weight is {weight}")
        objection = self.gatherer.objection(self.sent, upload)
        if not objection:
            # What enters the sum is what counts.
            summed = upload if weight == 1 else map_slots(lambda t: t * weight, upload)
            try:
                objection = self.phase.objection(summed, rows)
            except (KeyError, IndexError, RuntimeError, ValueError) as error:
                objection = f"it has not the parts that it must ({type(error).__name__})"
        if not objection and not abs(report.loss) < plausible.ABSURD:
            objection = "its loss is none"
        if objection:
            raise Refused(f"uploaded what cannot be: {objection}")
        return upload

    def _absurd(self, uploads: Mapping[int, Slots], weights: Mapping[int, float]) -> set[int]:
        """Whose upload is far larger than those of the others; other rules than the mean bound what
        one can do by themselves."""
        phase = self.phase
        if phase.is_move and self.gatherer.rule.rule != "mean":
            return set()
        numbers = list(uploads)
        found: set[int] = set()

        def outsized(lengths: Sequence[float], factor: float, floor: float = 0.0) -> set[int]:
            return {numbers[place] for place in plausible.outsized(lengths, factor, floor)}

        if phase.is_move:
            for role, names, floor in self._groups(uploads):
                before = self.sent.get(role, {})
                parts = [{name: uploads[n][role][name] for name in names} for n in numbers]
                lengths = [plausible.moved(before, part) for part in parts]
                found |= outsized(lengths, plausible.FACTOR, floor)
            return found
        for role in next(iter(uploads.values()), {}):
            sizes = {n: weights[n] * plausible.length(uploads[n][role]) for n in numbers}
            found |= outsized([size / self.rows[n] for n, size in sizes.items()], phase.reach)
        return found

    def _groups(self, uploads: Mapping[int, Slots]) -> Iterator[tuple[str, list[str], float]]:
        """What is compared with its like: all weights of a role, and each count by itself.

        Counts have units of their own, and would hide how far weights went. With each group goes
        how far a move of it may always be.
        """
        for role, params in next(iter(uploads.values()), {}).items():
            before = self.sent.get(role, {})
            wide = [name for name, t in params.items() if is_wide(t)]
            known = {name: before[name] for name in wide if name in before}
            yield role, wide, plausible.length(known)
            for name in params.keys() - set(wide):
                own = plausible.length({name: before[name]} if name in before else {})
                yield role, [name], max(own, COUNTED * params[name].numel() ** 0.5)
