"""Names and versions of plugins, as files write them."""

from __future__ import annotations

import itertools

import pytest

from penstock.plugins.names import PluginName, is_name, is_version, newness, same_version


@pytest.mark.parametrize(
    ("text", "registry", "name", "version"),
    [
        ("files", "", "files", ""),
        ("builtin:files", "builtin", "files", ""),
        ("standalone:tail@1.2.0", "standalone", "tail", "1.2.0"),
        ("tail@v1.2.0", "", "tail", "v1.2.0"),
        ("tail@latest", "", "tail", ""),
        ("builtin:tail@latest", "builtin", "tail", ""),
        ("other:tail", "", "other:tail", ""),  # no registry of ours: the name of nothing
        ("builtin:", "builtin", "", ""),
        ("", "", "", ""),
    ],
)
def test_a_name_has_a_registry_a_name_and_a_version(text: str, registry: str, name: str, version: str) -> None:
    found = PluginName.parse(text)
    assert (found.registry, found.name, found.version) == (registry, name, version)
    assert str(found) == text.replace("@latest", "")


def test_what_may_be_a_name_and_a_version() -> None:
    assert [t for t in ("tail", "Tail-2.x_y", "", "latest", "a/b", "..", "-a", "a b", "a@b", "ü") if is_name(t)] == [
        "tail",
        "Tail-2.x_y",
    ]
    good = ("1.2.3", "v0.1.0", "1.0.0-rc.1", "1.0.0+build.5", "v1.2.3-0.20240101-abcdef", "(devel)", "1.2", "main")
    assert all(is_version(t) for t in good)
    assert not any(is_version(t) for t in ("", "latest", "a/b", "..", "a b", "a@b", "-1", "ü", "1" * 101))


def test_versions_are_sorted_as_semver_says() -> None:
    in_order = (
        "1.0.0-alpha 1.0.0-alpha.1 1.0.0-alpha.beta 1.0.0-beta.2 1.0.0-beta.11 1.0.0-rc.1 1.0.0 1.0.1 1.10.0 v2.0.0"
    )
    for older, newer in itertools.pairwise(in_order.split()):
        assert newness(older) < newness(newer), (older, newer)
    assert same_version("v1.2.3", "1.2.3")
    assert not same_version("1.2.3", "1.2.30")
