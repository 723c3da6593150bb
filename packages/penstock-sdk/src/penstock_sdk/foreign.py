"""What a host can say about a config without starting the plugin that it is for: only what the plugin's specification tells."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from penstock_protocol.interfaces import Parameter, ParameterType, Validation, ValidationType
from penstock_sdk.kinds import nanoseconds, read_boolean, read_integer, vet_integer
from penstock_sdk.problems import Problem, clipped, unknown


def parse_parameters(parameters: Mapping[str, Parameter], config: Mapping[str, str]) -> list[Problem]:
    """What is wrong with a config as far as the plugin's specification tells. In doubt it is right: the plugin has the last word.
    A star in a parameter's name stands for anything up to the next dot; at the end, for anything."""
    problems = []
    known = set()
    for pattern, parameter in parameters.items():
        for name in _names(pattern, config):
            known.add(name)
            problems += [Problem(name, text) for text in _wrong(parameter, config.get(name, ""))]
    return sorted({*problems, *(unknown(name, parameters) for name in config if name not in known)})


def _names(pattern: str, config: Mapping[str, str]) -> set[str]:
    head, star, tail = pattern.rpartition("*")
    if not star:
        return {pattern}
    start = re.compile("[^.]+".join(map(re.escape, head.split("*"))) + ("[^.]+" if tail else ".+"), re.DOTALL)
    found = [(name, match.end()) for name in config if (match := start.match(name))]
    return {name[:end] + tail if tail else name for name, end in found if not tail or name[end:].startswith(".")}


def _wrong(parameter: Parameter, text: str) -> list[str]:
    if not text:
        required = Validation(ValidationType.REQUIRED) in parameter.validations
        return ["is required"] if required and not parameter.default else []
    try:
        _readers.get(parameter.type, str)(text.strip())
    except ValueError as error:
        return [f"{clipped(repr(text))} {error}"]
    return [why for each in parameter.validations if (why := _fails(each, text, parameter.type))]


def _read_any_number(text: str) -> float:
    """Go takes more than we do: infinities and hexadecimal numbers."""
    try:
        if "_" not in text:
            return float.fromhex(text) if "x" in text.lower() else float(text)
    except (ValueError, OverflowError):
        pass
    raise ValueError("is no number")


_readers: Mapping[ParameterType, Callable[[str], Any]] = {
    ParameterType.INT: lambda text: vet_integer(read_integer(text)),
    ParameterType.FLOAT: _read_any_number,
    ParameterType.BOOL: read_boolean,
    ParameterType.DURATION: nanoseconds,
}


def _fails(validation: Validation, text: str, kind: ParameterType) -> str:
    bound, values = validation.value, {text, text.strip()}  # most plugins strip, not all
    match validation.type:
        case ValidationType.GREATER_THAN | ValidationType.LESS_THAN if kind in (ParameterType.INT, ParameterType.FLOAT):
            number, limit = _read_any_number(text.strip()), _limit(bound)
            if validation.type is ValidationType.GREATER_THAN and limit is not None and not number > limit:
                return f"{clipped(repr(text))} is not greater than {bound}"
            if validation.type is ValidationType.LESS_THAN and limit is not None and not number < limit:
                return f"{clipped(repr(text))} is not less than {bound}"
        case ValidationType.INCLUSION if values.isdisjoint(bound.split(",")):
            return f"{clipped(repr(text))} is not one of {', '.join(bound.split(','))}"
        case ValidationType.EXCLUSION if values <= set(bound.split(",")):
            return f"{clipped(repr(text))} is one of {', '.join(bound.split(','))}"
        case ValidationType.REGEX:
            try:
                if not any(re.search(bound, each, re.ASCII) for each in values):
                    return f"does not match {bound}"  # the value may be a secret
            except re.error:
                pass  # Go's, and not ours
    return ""


def _limit(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
