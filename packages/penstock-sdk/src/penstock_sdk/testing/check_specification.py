"""Checks of what a connector says about itself."""

from __future__ import annotations

import re

from penstock_sdk.destination import Destination
from penstock_sdk.foreign import parse_parameters
from penstock_sdk.source import Source
from penstock_sdk.testing.bench import Bench
from penstock_sdk.testing.results import Failure, NotChecked, Refused, check

_SEMVER = re.compile(
    r"v?(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?(\+[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?"
)
_NO_ROLE = "does not have this role"


@check("specification.texts", "process.handshake")
def texts(bench: Bench) -> str | None:
    """It answers Specify, and name, summary and description are not empty."""
    found = bench.specification
    for name in ("name", "summary", "description"):
        if not getattr(found, name).strip():
            raise Failure(f"its {name} is empty", f"a {name}", f"say it in the specification's {name}")
    return f"{found.name} {found.version}"


@check("specification.version", "process.handshake")
def version(bench: Bench) -> str | None:
    """Its version is a semantic one, such as v1.2.3 or 0.4.0-beta.1."""
    found = bench.specification.version
    if not _SEMVER.fullmatch(found):
        raise Failure(f"its version is {found!r}", "three numbers with dots: v1.2.3", "see https://semver.org")
    return None


@check("specification.parameters", "process.handshake")
def parameters(bench: Bench) -> str | None:
    """Every parameter is described."""
    for role in bench.roles():
        for name, parameter in bench.parameters(role).items():
            if not parameter.description.strip():
                raise Failure(
                    f"the parameter {name!r} of the {role} has no description",
                    "a sentence for each",
                    "say what it is for, where it is declared",
                )
    return None


@check("specification.defaults", "process.handshake")
def defaults(bench: Bench) -> str | None:
    """Every default is of its parameter's type and passes its parameter's validations."""
    for role in bench.roles():
        for name, parameter in bench.parameters(role).items():
            if parameter.default and (problems := parse_parameters({name: parameter}, {name: parameter.default})):
                raise Failure(
                    f"the default of the {role}'s {problems[0]}",
                    "a default that would be accepted if somebody wrote it",
                    "change the default, the type or the validation",
                )
    return None


@check("specification.roles", "process.handshake")
def roles(bench: Bench) -> str | None:
    """It has the roles that it names parameters for, and at least one."""
    found = bench.roles()
    connector = bench.subject.connector
    if connector is not None and connector.source is None and connector.destination is None:
        raise Failure("it is neither source nor destination", "at least one of them", "give the Connector a class")
    for role in found:
        try:
            run = bench.role(role)
            run.configure(bench.given[role] or {})
        except Refused as e:
            if e.unimplemented or e.gone or _NO_ROLE in e.text:
                raise Failure(
                    f"it names parameters of a {role}, and Configure of that says: {e.text}",
                    f"a {role}",
                    f"serve the {role}, or leave its parameters out of the specification",
                ) from e
    return f"it is a {' and a '.join(found)}" if found else None


@check("specification.methods", "process.handshake")
def methods(bench: Bench) -> str | None:
    """A source has `read`, a destination `write` or `write_async`."""
    connector = bench.subject.connector
    if connector is None:
        raise NotChecked("its code is not here to be looked at; reading and writing will show")
    if connector.source is not None and connector.source.read is Source.read:
        raise Failure(f"{connector.source.__name__} has no read", "a read", "override read(max_records, timeout)")
    kind = connector.destination
    if kind is not None and kind.write is Destination.write and kind.write_async is Destination.write_async:
        raise Failure(f"{kind.__name__} has neither write nor write_async", "one of them", "override write(batch)")
    return None
