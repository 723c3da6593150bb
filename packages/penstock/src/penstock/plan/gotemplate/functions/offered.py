"""Which functions a template may call, and why not, for the others that Conduit has. Pure; used by `parser` and `compiler`."""

from __future__ import annotations

import difflib

from penstock.plan.gotemplate.errors import TemplateError, unsupported
from penstock.plan.gotemplate.functions.registry import FUNCTIONS

_SAME = "a record has to give the same result on every attempt"
_CLOCK = (_SAME + ", and this asks the clock", "use a time of the record, such as .Metadata.GetReadAt")
_CHANCE = (_SAME + ", and this is chance", "make it of the record, such as sha256sum of its key")
_ENVIRONMENT = (
    "it would read the environment of whatever machine runs the task",
    "write ${NAME} in the pipeline's file",
)
_NETWORK = ("it would ask the network", "write the address")
_SECRETS = ("it makes keys or secrets", "use the `python` processor")
_CHANGES = ("it could change the record", "use `dict`, `pick`, `omit` or `set` on a map of your own")
_RARE = ("it is not offered", "use the `python` processor")

_NAMES: dict[tuple[str, str], str] = {
    _CLOCK: "now ago",
    _CHANCE: "randAlphaNum randAlpha randAscii randNumeric randInt randBytes shuffle uuidv4",
    _ENVIRONMENT: "env expandenv",
    _NETWORK: "getHostByName",
    _SECRETS: "bcrypt htpasswd genPrivateKey derivePassword buildCustomCert genCA genCAWithKey genSelfSignedCert "
    "genSelfSignedCertWithKey genSignedCert genSignedCertWithKey encryptAES decryptAES",
    _CHANGES: "merge mergeOverwrite mustMerge mustMergeOverwrite deepCopy mustDeepCopy",
    _RARE: "toDate mustToDate durationRound abbrevboth snakecase camelcase kebabcase wrap wrapWith b32dec "
    "semver urlParse urlJoin hello "
    "base dir clean ext isAbs osBase osClean osDir osExt osIsAbs",
}
REFUSED = {name: reason for reason, names in _NAMES.items() for name in names.split()}
KNOWN = frozenset({*FUNCTIONS, "and", "or"})


def check(name: str) -> None:
    """Raises `TemplateError` for a name that is no function here."""
    if name in KNOWN:
        return
    if name in REFUSED:
        why, hint = REFUSED[name]
        raise unsupported(f"the function `{name}`: {why}", hint)
    near = difflib.get_close_matches(name, [*KNOWN, *REFUSED], 1)
    raise TemplateError(f"there is no function `{name}`", f"did you mean `{near[0]}`?" if near else "")
