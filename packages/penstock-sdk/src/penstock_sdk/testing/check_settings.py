"""Checks of Configure, in both roles: what is right is accepted, what is wrong is refused by name."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from penstock_protocol.interfaces import Parameter, ParameterType, Validation, ValidationType
from penstock_sdk.testing.bench import Bench, Role
from penstock_sdk.testing.results import Failure, NotChecked, Refused, check

_REQUIRED = Validation(ValidationType.REQUIRED)
_NO_SUCH = "no-such-thing"
_WRONG = {
    ParameterType.INT: "many",
    ParameterType.FLOAT: "many",
    ParameterType.BOOL: "perhaps",
    ParameterType.DURATION: "soon",
}


@check("settings.accepted", "specification.roles")
def accepted(bench: Bench) -> str | None:
    """Configure accepts the given settings."""
    for role in _given(bench):
        bench.role(role).configure(bench.given[role] or {})
    return None


@check("settings.defaults", "settings.accepted", "specification.defaults")
def defaults(bench: Bench) -> str | None:
    """Configure accepts every default if it is written out."""
    for role in _given(bench):
        config = {**_defaults(bench.parameters(role)), **(bench.given[role] or {})}
        try:
            bench.role(role).configure(config)
        except Refused as e:
            raise Failure(
                f"the {role} refuses what it names as defaults: {e.text}",
                "they are accepted",
                "change the default, or what Configure makes of it",
            ) from e
    return None


@check("settings.required", "settings.accepted")
def required(bench: Bench) -> str | None:
    """A required parameter that is missing is an error, which names it."""
    tried = 0
    for role in bench.roles():
        needed = [
            n
            for n, p in bench.parameters(role).items()
            if _REQUIRED in p.validations and not p.default and "*" not in n
        ]
        given = bench.given[role]
        tried += len(needed)
        if given is None and needed:
            _refused(bench, role, {}, needed, f"no settings at all, though {' and '.join(needed)} must be there")
            continue
        for name in needed:
            config = {n: v for n, v in (given or {}).items() if n != name}
            _refused(bench, role, config, [name], f"settings without {name}, which it says is required")
    if not tried:
        raise NotChecked("no parameter is required")
    return None


@check("settings.violated", "settings.accepted")
def violated(bench: Bench) -> str | None:
    """A value that is not of its parameter's type, or violates one of its validations, is an error, which names the parameter."""
    tried = 0
    for role in _given(bench):
        for name, parameter in bench.parameters(role).items():
            if "*" in name:
                continue
            for value in _violations(parameter):
                tried += 1
                _refused(bench, role, {**(bench.given[role] or {}), name: value}, [name], f"{name}={value!r}")
    if not tried:
        raise NotChecked("no parameter has a type or a validation that could be violated")
    return None


@check("settings.unknown", "settings.accepted")
def unknown(bench: Bench) -> str | None:
    """A parameter that it does not know is an error, which names it: it may be a slip of the pen."""
    for role in _given(bench):
        try:
            _refused(bench, role, {**(bench.given[role] or {}), _NO_SUCH: "x"}, [_NO_SUCH], f"{_NO_SUCH}='x'")
        except Failure:
            if bench.subject.connector is None:
                raise NotChecked("it takes parameters that it does not know; many connectors do") from None
            raise
    return None


@check("settings.lifecycle", "settings.accepted")
def lifecycle(bench: Bench) -> str | None:
    """The calls for being created, updated and deleted are answered, also by a connector that does not know them."""
    for role in _given(bench):
        config = bench.given[role] or {}
        run = bench.role(role)
        run.configure(config)
        for name, arguments in (("on_created", [config]), ("on_updated", [config, config])):
            run.call(name, *arguments)
        bench.role(role).call("on_deleted", config)  # in a process of its own, which was not configured
    return None


def _given(bench: Bench) -> list[Role]:
    found = [role for role in bench.roles() if bench.given[role] is not None]
    if not found:
        raise NotChecked("no settings: give them with --source NAME=VALUE and --destination NAME=VALUE")
    return found


def _defaults(parameters: Mapping[str, Parameter]) -> dict[str, str]:
    return {name: p.default for name, p in parameters.items() if p.default and "*" not in name}


def _refused(bench: Bench, role: Role, config: Mapping[str, str], names: list[str], what: str) -> None:
    """`names`: one of them is in the error."""
    run = bench.role(role)
    try:
        run.configure(config)
    except Refused as e:
        if e.gone:
            raise Failure(f"the {role} was given {what}, and is gone: {e.text}", "an error", "return it") from e
        if not any(name in e.text for name in names):
            raise Failure(
                f"the {role} was given {what}, and says: {e.text}",
                f"an error that names {' or '.join(names)}",
                "name the parameter in the error's text",
            ) from e
        return
    raise Failure(f"the {role} accepted {what}", "an error", "check it in Configure, as the specification says")


def _violations(parameter: Parameter) -> Iterator[str]:
    if parameter.type in _WRONG:
        yield _WRONG[parameter.type]
    for validation in parameter.validations:
        match validation.type:
            case ValidationType.GREATER_THAN | ValidationType.LESS_THAN:
                yield validation.value  # neither greater nor less than itself
            case ValidationType.INCLUSION:
                yield _NO_SUCH
            case ValidationType.EXCLUSION:
                yield validation.value.partition(",")[0]
            case ValidationType.REGEX:
                yield from _other(validation.value)


def _other(pattern: str) -> Iterator[str]:
    """A text that does not match, if one of these does not."""
    try:
        found = re.compile(pattern, re.ASCII)
    except re.error:  # Go's, and not ours
        return
    for text in ("~", "a", "0", "~~ ~~", "-"):
        if not found.search(text):
            yield text
            return
