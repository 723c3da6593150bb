"""How a run ended, for people's programs: pipeline by pipeline, and as one line of JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.engine.supervisor import PipelineResult


@dataclass(frozen=True)
class Summary:
    """How a run ended, pipeline by pipeline."""

    pipelines: tuple[PipelineResult, ...]

    @property
    def ok(self) -> bool:
        return all(p.error is None for p in self.pipelines)

    def to_json(self) -> dict[str, Any]:
        return {"event": "summary", "pipelines": [_result_json(p) for p in self.pipelines]}

    def raise_for_error(self) -> Summary:
        """Raises the first error of a pipeline that is degraded; else returns itself."""
        for p in self.pipelines:
            if p.error is not None:
                raise p.error
        return self


_COUNTS = ("delivered", "filtered", "dead_lettered", "discarded", "produced")


def _result_json(p: PipelineResult) -> dict[str, Any]:
    destinations: dict[str, dict[str, int]] = {}
    for lane in p.lanes:
        for name in lane.delivered:
            d = destinations.setdefault(name, dict.fromkeys(_COUNTS, 0))
            for count in _COUNTS:
                d[count] += getattr(lane, count).get(name, 0)
    sources: dict[str, Any] = {lane.source: {"read": lane.read, "acked": lane.acked} for lane in p.lanes}
    for lane in p.lanes:
        if lane.remaining is not None:
            sources[lane.source]["remaining"] = asdict(lane.remaining)
        if lane.held:
            sources[lane.source]["held"] = [
                {"id": n.id, "seq": n.seq, "node": n.node, "destination": n.destination, "error": n.error}
                for n in lane.held
            ]
    return {
        "id": p.id,
        "status": p.status.value,
        "error": str(p.error) if p.error else None,
        "seconds": round(p.seconds, 3),
        "sources": sources,
        "destinations": destinations,
    }
