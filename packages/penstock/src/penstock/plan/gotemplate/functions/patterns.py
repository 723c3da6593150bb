"""sprig's functions with regular expressions. Pure. Literal patterns are checked at parsing, by `compiler`."""

from __future__ import annotations

from penstock.plan.gotemplate.errors import Failure
from penstock.plan.gotemplate.functions.registry import function
from penstock.plan.gotemplate.printing import bounded
from penstock.plan.gotemplate.regex import PatternError, all_matches, compiled, replaced, split, translated
from penstock.plan.gotemplate.values import NoStrings, Strings

# The functions whose first argument is a pattern.
WITH_PATTERN = frozenset(
    must + name
    for name in ("Match", "FindAll", "Find", "ReplaceAll", "ReplaceAllLiteral", "Split")
    for must in ("regex", "mustRegex")
)
_META = frozenset("\\.+*?()|[]{}^$")


@function("regexMatch", "string", "string")
def regex_match(pattern: str, s: str) -> bool:
    try:
        translated(pattern)
    except PatternError:
        return False  # sprig swallows the error
    except Exception:
        pass
    return compiled(pattern).search(s) is not None


@function("mustRegexMatch", "string", "string")
def must_regex_match(pattern: str, s: str) -> bool:
    return compiled(pattern).search(s) is not None


@function("regexFind mustRegexFind", "string", "string")
def regex_find(pattern: str, s: str) -> str:
    found = compiled(pattern).search(s)
    return found[0] if found else ""


@function("regexFindAll mustRegexFindAll", "string", "string", "int")
def regex_find_all(pattern: str, s: str, limit: int) -> Strings:
    found = compiled(pattern)
    return Strings(match[0] for match in all_matches(found, s, int(limit))) or NoStrings()


@function("regexReplaceAll mustRegexReplaceAll", "string", "string", "string")
def regex_replace_all(pattern: str, s: str, by: str) -> str:
    _check(s, by)
    return bounded(replaced(compiled(pattern), s, by, literal=False))


@function("regexReplaceAllLiteral mustRegexReplaceAllLiteral", "string", "string", "string")
def regex_replace_all_literal(pattern: str, s: str, by: str) -> str:
    _check(s, by)
    return bounded(replaced(compiled(pattern), s, by, literal=True))


def _check(s: str, by: str) -> None:
    if len(s) * len(by) > 2**30:
        raise Failure("regexReplaceAll makes a text that is too long")


@function("regexSplit mustRegexSplit", "string", "string", "int")
def regex_split(pattern: str, s: str, limit: int) -> Strings:
    return Strings(split(compiled(pattern), s, int(limit))) or NoStrings()


@function("regexQuoteMeta", "string")
def regex_quote_meta(s: str) -> str:
    return "".join("\\" + c if c in _META else c for c in s)
