"""The functions that templates call: Go's own and sprig's. Importing this fills the registry. Pure."""

from penstock.plan.gotemplate.functions import collections_, core, numbers, patterns, texts, times, versions
from penstock.plan.gotemplate.functions.offered import KNOWN, REFUSED, check
from penstock.plan.gotemplate.functions.registry import FUNCTIONS, Function

__all__ = [
    "FUNCTIONS",
    "KNOWN",
    "REFUSED",
    "Function",
    "check",
    "collections_",
    "core",
    "numbers",
    "patterns",
    "texts",
    "times",
    "versions",
]
