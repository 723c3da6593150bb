"""The function that pipeline.yaml names. It is called once for each record, in several processes at once.

It may change the record and return it, return a list of records, DROP the record on purpose, or Reject it with a
reason. When it raises, that one record is bad and the others go on.
"""

from __future__ import annotations

from penstock import DROP, Drop, Record, Reject


def clean(r: Record) -> Record | Drop | Reject:
    person = r.after
    assert isinstance(person, dict)  # `format: json` makes an object of every line

    if person.get("plan") == "test":
        return DROP

    email = str(person.get("email") or "").strip().lower()
    if "@" not in email:
        return Reject(f"{email!r} is no e-mail address", code="signup.email")

    person["email"] = email
    person["name"] = str(person.get("name") or "").strip()
    return r
