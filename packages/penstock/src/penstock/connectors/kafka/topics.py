"""The topic that a record goes to, where it is not the same for all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock import record
from penstock.config import Settings
from penstock.native import Processor, Record, Shape, Where
from penstock.plan.templated import template

if TYPE_CHECKING:
    from pyspark.sql import Column

TOPIC_KEY = "penstock.topic"  # in the metadata, until the record is staged
MISSING = "it has no topic: its namespace is empty, or the template gives nothing"
NO_NAME = "is no name of a topic: letters, digits, `.`, `_` and `-`, at most 249"


class TopicSettings(Settings):
    template: str


class TopicOf(Processor[TopicSettings]):
    """Evaluates the template, behind all other processors."""

    def __init__(self, settings: TopicSettings, processor_id: str) -> None:
        super().__init__(settings, processor_id)
        found = template(settings.template)
        assert found is not None
        self._template = found
        self.uses = frozenset({record.METADATA}) | found.columns  # type: ignore[misc]

    @classmethod
    def of(cls, text: str, destination_id: str) -> TopicOf:
        return cls(TopicSettings(template=text), destination_id)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.settings, self.processor_id)

    def where(self, shape: Shape) -> Where:
        del shape
        return Where.PYTHON

    def apply(self, r: Record) -> Record:
        r.metadata[TOPIC_KEY] = self._template.text(r)
        return r


def unfit_topic(topic: Column) -> Column:
    from pyspark.sql import functions as F

    bad = ~F.regexp_like(topic, F.lit(r"^[a-zA-Z0-9._-]{1,249}$")) | topic.isin(".", "..")
    return F.when(topic.isNull() | (topic == ""), F.lit(MISSING)).when(bad, F.concat(topic, F.lit(f" {NO_NAME}")))
