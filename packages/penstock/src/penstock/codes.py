"""Every code an error can have: what it means, and what to do about it. Imports nothing of ours.

Read by `scripts/errors.py`, which writes docs/reference/errors.md; a test holds it to the codes that the source uses. Texts are
Markdown, with links as they are written on that page.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# What follows from it: nothing was run (refused); the pipeline stops; the batch is tried again by itself; one record becomes a
# dead letter (nack); nothing, it is only said (warning).
KINDS = ("refused", "stop", "retry", "nack", "warning")


@dataclass(frozen=True, slots=True)
class Code:
    kind: str  # one of KINDS, or several with commas between them
    meaning: str
    todo: str = ""  # empty where there is nothing to say beyond the meaning


def by_code() -> dict[str, Code]:
    return {code: about for codes in SECTIONS.values() for code, about in codes.items()}


SECTIONS: Mapping[str, Mapping[str, Code]] = {
    "Usage and configuration": {
        "usage.arguments": Code(
            "refused",
            "a command, an option or an argument that does not exist, is missing or has a bad value",
            "see `--help`",
        ),
        "usage.range": Code("refused", "`--from` is after `--to`", "swap them"),
        "usage.regex": Code("refused", "`--namespace` is no regular expression", "escape `( * + ? [` with a backslash"),
        "usage.conf": Code("refused", "`--conf` was not followed by `KEY=VALUE`", "write `--conf name=value`"),
        "config.unreadable": Code(
            "refused",
            "a file or folder can't be read, is not UTF-8, or a folder has no pipeline file",
            "check path and permissions; save as UTF-8",
        ),
        "config.syntax": Code(
            "refused",
            "not YAML, a control character, an unknown anchor, a value that holds itself, too many aliases, too deep",
            "correct the place that is shown",
        ),
        "config.tag": Code("refused", "a YAML tag such as `!!binary`", "remove it; put text in quotes"),
        "config.duplicate-key": Code(
            "refused", "a key appears twice in one mapping", "remove one; the first one's line is shown"
        ),
        "config.duplicate-id": Code(
            "refused",
            "two pipelines, connectors or processors have the same id",
            "change one; the first one's place is shown",
        ),
        "config.unknown-key": Code(
            "refused", "a key or a setting that does not exist", "see the hint: the nearest known one"
        ),
        "config.missing-key": Code("refused", "a key or a setting that is needed", "add it"),
        "config.bad-value": Code("refused", "a value that is not allowed there", "write what the text asks for"),
        "config.unset-variable": Code(
            "refused", "a reference to an environment variable that is not set", "set it, or write `${env:X:-default}`"
        ),
        "config.bad-reference": Code(
            "refused",
            "`$` or `${` starts something that is no reference",
            "write one of the forms shown, or `${literal:…}`",
        ),
        "config.no-source": Code("refused", "a pipeline without a source", "add a connector with `type: source`"),
        "config.no-destination": Code(
            "refused", "a pipeline without a destination", "add a connector with `type: destination`"
        ),
        "config.loop": Code("refused", "a pipeline writes into a folder that it reads", "use another folder"),
        "config.same-folder": Code(
            "refused", "two destinations write into one folder", "give each a folder of its own"
        ),
        "config.reserved-id": Code(
            "refused", "a destination is called `dead-letters` or `dead-letter-queue`", "use another id"
        ),
        "config.unknown-plugin": Code(
            "refused", "no source, destination or processor has this name", "use one that is listed"
        ),
        "config.shape": Code(
            "refused",
            "a processor or a destination can't work on what reaches it",
            "do what the hint says: most often `json.decode` or `json.encode` is missing",
        ),
        "config.bad-condition": Code(
            "refused",
            "a condition, or `namespaces`, does not parse or is outside [the subset](expressions.md)",
            "read the text; the hint says what to write",
        ),
        "config.bad-template": Code(
            "refused",
            "a Go template does not parse, or calls a function that does not exist",
            "correct it; the hint has the nearest name",
        ),
        "config.unsupported-template": Code(
            "refused",
            "a Go template that Conduit would take uses [something not offered here](templates.md)",
            "write what the hint says",
        ),
        "config.conduit-plugin": Code(
            "refused",
            "a connector or processor of Conduit that is not there",
            "see the hint, and [coming from Conduit](../conduit.md)",
        ),
        "config.conduit-setting": Code(
            "refused", "a setting that only connectors made with Conduit's SDK have (`sdk.…`)", "see the hint"
        ),
        "config.template-variable": Code(
            "refused",
            "`$x` of a Go template would be read as an environment variable",
            "put the whole text into `${literal:…}`",
        ),
        "config.unreadable-reference": Code(
            "refused",
            "the file of `${file:…}` is missing, unreadable, over 1 MiB or not UTF-8",
            "check path and permissions",
        ),
        "config.no-pipelines": Code("refused", "nothing that was given has a pipeline", "name another file"),
        "config.no-version": Code("warning", "no version, read as 2.2", 'write `version: "2.2"`'),
        "config.unknown-version": Code("warning", "an unknown 2.x, read as 2.2", 'write `version: "2.2"`'),
        "config.renamed-key": Code("warning", "a processor's `type` is called `plugin` since 2.2", "rename it"),
        "test.none": Code("refused", "`penstock test` found no test to run", "add `tests` to a pipeline"),
        "test.unknown-connector": Code(
            "refused", "a test names a source or destination that the pipeline has not", "use one that is listed"
        ),
        "config.guarantee": Code(
            "refused",
            "a destination, or `after-ack`, can't keep the `guarantee`",
            "choose another `guarantee`, destination or setting",
        ),
        "config.unknown-connector": Code(
            "refused", "`Pipeline.processor(on=…)` names a connector that was not added yet", "add it first"
        ),
        "config.several": Code(
            "refused",
            "`Pipeline.from_file` was given a file with none or several pipelines",
            "use `Pipeline.from_files`",
        ),
    },
    "Commands": {
        "init.exists": Code(
            "refused",
            "`penstock init` would write over what is in the folder; nothing was made",
            "name another folder: `penstock init FOLDER`",
        ),
        "init.folder": Code(
            "refused",
            "the folder can't be made or written; nothing was made",
            "name another one, or see to its rights and the space",
        ),
        "config.ambiguous-plugin": Code(
            "refused", "a name that more than one plugin has", "write `builtin:` or `standalone:` before it"
        ),
        "config.hosted": Code(
            "refused",
            "a connector that runs in a process of its own, which pipelines can't use yet",
            "use one that runs in Spark",
        ),
        "config.connect": Code(
            "refused",
            "what a connector said when `validate --connect` asked it",
            "do what its words say; `penstock plugins describe` has its settings",
        ),
        "plugins.install": Code(
            "refused", "a program that can't be added to the plugins folder; nothing was changed", "see the hint"
        ),
        "plugins.lock": Code(
            "refused", "`plugins.lock` can't be read", "restore it, or remove it and add each plugin again"
        ),
        "plugins.changed": Code(
            "refused",
            "a plugin program is not what it was when it was added; it is not run",
            "restore it, or `penstock plugins install` it again",
        ),
        "plugins.package": Code(
            "refused", "an installed package offers a connector that can't be used", "repair or uninstall the package"
        ),
        "plugins.refused": Code(
            "refused", "a connector does not take these settings; the text has its words", "do what its words say"
        ),
        "connector.name": Code("refused", "no name for a connector", "use small letters, digits and single hyphens"),
        "plugins.unknown": Code(
            "refused",
            "no connector or processor has this name",
            "see the hint; `penstock plugins list` shows all of them",
        ),
        "dlq.unknown": Code(
            "refused",
            "no dead letter has this id",
            "`penstock dlq list` shows the ids; the first digits of one are enough",
        ),
        "dlq.ambiguous": Code("refused", "several dead letters begin with these digits", "give more digits"),
        "internal.error": Code(
            "stop",
            "a command met an error that nobody has foreseen",
            "run the same as `penstock --debug …` to see where, and report it; the next run goes on where this one stopped",
        ),
    },
    "State folder and ledger": {
        "state.missing": Code(
            "refused",
            "there is no state folder here to look at",
            "run a pipeline first, or name its folder with `--state`",
        ),
        "state.empty": Code("refused", "no pipeline has run yet with this state folder", "run one"),
        "state.foreign": Code(
            "refused",
            "the folder is no state folder",
            "name the one that `penstock run` made: `.penstock` beside the pipeline file, unless `--state` said otherwise",
        ),
        "state.older": Code(
            "refused",
            "an older Penstock wrote the folder, and a command that only looks changes nothing",
            "run a pipeline on it, which brings it up to date; or look with the Penstock that wrote it",
        ),
        "state.unreadable": Code("refused", "the state folder can't be read", "look as the user that ran the pipeline"),
        "state.unknown-pipeline": Code(
            "refused", "the state folder knows no pipeline with this id", "use one that is listed"
        ),
        "state.unknown-source": Code(
            "refused", "the state folder knows no source with this id", "use one that is listed"
        ),
        "state.locked": Code(
            "refused",
            "another engine uses the folder; its pid, machine and start are shown",
            "stop it, or use another folder with `--state`",
        ),
        "state.version": Code(
            "refused", "a newer Penstock wrote the folder; nothing was changed", "install that version or a newer one"
        ),
        "state.unusable": Code(
            "refused", "the folder can't be made or written", "make it writable, free space, or use `--state`"
        ),
        "state.unfinished": Code(
            "refused", "a rewind while a batch is unfinished", "run the pipeline with `--once` first"
        ),
        "state.fenced": Code("stop", "another engine has taken the folder over", "run one engine per folder"),
        "state.destination-gone": Code(
            "stop",
            "work is prepared for a destination that the pipeline does not have any more, or that was an object "
            "of a program",
            "`--finish`, `--abandon ID`, or put it back until that work is finished",
        ),
        "ledger.open": Code(
            "stop",
            "the ledger can't be opened",
            "check space and permissions; restore the folder from a backup if the file is damaged",
        ),
        "ledger.read": Code("stop", "the ledger can't be read", "as above"),
        "ledger.prepared": Code(
            "stop",
            "a prepared batch was to be given up, or an unprepared one called done: neither ever happens",
            "start again",
        ),
        "ledger.split": Code("stop", "a batch was to be cut into itself and nothing: never happens", "start again"),
        "ledger.write": Code(
            "stop",
            "a transaction could not be written, or the file was removed while the engine ran",
            "free space or restore the folder; start again",
        ),
    },
    "Commit logs": {
        "log.missing": Code(
            "refused", "there is no log in that folder", "`penstock log list` shows those that are there"
        ),
        "log.unknown": Code(
            "refused", "no log of that name in the state folder", "`penstock log list` shows the names"
        ),
        "log.unreadable": Code(
            "refused", "the system refuses to read or change the folder of a log", "check path and permissions"
        ),
        "log.locked": Code(
            "refused", "another process writes or compacts this log", "stop that one, or wait until it has finished"
        ),
        "log.version": Code(
            "refused", "a file of the log was written by a newer Penstock; nothing was changed", "install that one"
        ),
        "log.full": Code(
            "retry",
            "the log has its largest size: readers have not acknowledged what it holds",
            "`penstock log offsets` shows who is behind; allow more, or `penstock log forget` a reader that is gone",
        ),
        "log.unwritable": Code(
            "retry",
            "the disk is full or refuses to write; what was durable is safe",
            "free space, or make the folder writable",
        ),
        "log.failed": Code(
            "stop",
            "an fsync or a write failed in a way after which nothing is known about the file; what was durable is safe",
            "check the disk, then start again: the log is read and goes on where it was durable",
        ),
        "log.closed": Code("stop", "something was appended to a log that was closed before", "open it again"),
        "log.damaged": Code(
            "stop",
            "bytes of the log that were durable are not what they were, or a segment is missing",
            "`penstock log verify` shows all of it; `penstock log repair` marks what is lost, so that the rest can be read",
        ),
        "log.offsets-damaged": Code(
            "stop",
            "the file with the readers' offsets is damaged; no record is",
            "`penstock log repair` sets all readers back to nothing acknowledged: they get everything again",
        ),
        "log.ack-beyond-end": Code(
            "stop",
            "a reader acknowledged an offset that is not in the log",
            "if the log was put back from an older copy, `penstock log forget` makes the reader begin anew",
        ),
        "log.unknown-reader": Code("stop", "the log has no such reader", "see the hint: those it has"),
        "log.foreign": Code(
            "refused", "segments of several logs are in one folder", "move away those that do not belong there"
        ),
        "log.misnamed": Code(
            "refused", "a segment has the name of another one; nothing was changed", "give it the name that is shown"
        ),
        "log.unrepairable": Code(
            "refused",
            "the only segment can't be read at all",
            "take the log back from a copy, or move the folder away to begin a new one",
        ),
        "log.value": Code(
            "nack",
            "a value, a time, metadata or a name that a log can't keep; its path and type are named",
            "convert it before it is sent",
        ),
        "log.batch": Code(
            "nack", "a batch whose columns have the wrong types, or that Arrow finds invalid", "correct the connector"
        ),
        "log.too-large": Code("nack", "a record of two gigabytes or more does not fit into a log"),
    },
    "Spark": {
        "java.missing": Code(
            "refused",
            "there is no Java, or it does not run",
            "install Java 17 or newer, or correct `JAVA_HOME`; `penstock doctor` checks it",
        ),
        "java.version": Code(
            "refused", "Java is older than 17", "install Java 17 or newer, and let `JAVA_HOME` point to it"
        ),
        "spark.missing": Code("refused", "PySpark is not installed", "install it: `pip install 'penstock[spark]'`"),
        "spark.start": Code(
            "refused",
            "Spark did not start",
            "read `spark.log` in the state folder; `penstock doctor` checks what Spark needs",
        ),
        "spark.setting": Code("refused", "a Spark setting contradicts what Penstock promises", "leave it out"),
        "spark.expression": Code(
            "stop",
            "Spark does not understand an expression: a syntax error, an unknown column",
            "read `why`; correct the expression",
        ),
        "spark.job": Code(
            "stop",
            "a job failed: most often the module of a `python` processor can't be imported, or has no such function",
            "read `why` and `spark.log`",
        ),
        "spark.version": Code(
            "stop",
            "this Spark can't confine an error to one record",
            "use a version that Penstock was tested with, without Spark Connect",
        ),
        "spark.memory": Code(
            "stop",
            "a task ran out of memory; the batch is cut in halves by itself",
            "`--conf spark.driver.memory=4g`, or smaller batches with `batch: {max-bytes: …}`",
        ),
        "spark.worker-died": Code(
            "stop",
            "a Python worker process was ended by what it ran, in all its tries; the batch is cut in halves by itself",
            "look for native code or memory use in Python processors",
        ),
        "spark.io": Code("retry", "a job failed on input or output", "see `why`; it is tried again"),
        "spark.died": Code(
            "stop",
            "Spark's Java process ended or does not answer; the engine ends with it",
            "see `spark.log`; if memory ran out, give more (`--conf spark.driver.memory=4g`) or use smaller "
            "batches; start again",
        ),
        "disk.full": Code("retry", "no space left", "free some; the same batch is tried again"),
        "processor.unknown-field": Code(
            "stop",
            "a processor names a field that the typed payload has not",
            "use a name of the schema; the nearest is shown",
        ),
        "processor.field-exists": Code("stop", "`rename` on a typed payload: the new name is taken", "choose another"),
        "processor.condition-type": Code(
            "stop",
            "a processor with a condition would give a typed payload another type: the records that it is not for"
            " have no place in it",
            "leave the condition out, use payloads without a schema, or `sql` with CASE",
        ),
        "test.schema": Code("stop", "the input of a test has no fields to find types from", "give the test a `schema`"),
        "processor.unsupported": Code(
            "stop",
            "a processor of your own gave no step; or a typed field reaches Python that has no form there (an "
            "interval, a VARIANT)",
            "return a `Step` from `compile`; leave such fields out, or use `sql`",
        ),
    },
    "Bad records": {
        "gate.closed": Code(
            "stop",
            "more bad records than `dead-letter-queue` allows; everything before the record is delivered, it is held",
            "[deal with dead letters](../how-to/dead-letters.md#held)",
        ),
        "dead-letters.gone": Code(
            "stop",
            "prepared dead letters are missing in the state folder",
            "restore the state folder; it was changed by hand",
        ),
        "handler.failed": Code(
            "stop",
            "an `on_outcome` handler raised; the batch is delivered and its source not acked",
            "correct the handler and start again",
        ),
        "processor.expression": Code(
            "stop, nack",
            "*stop*: an expression can't be evaluated for any record (an unknown column, a bad constant), or uses"
            " something that can't be confined to one record. *Nack*: it raised on this record",
            "correct it, or use a `python` processor",
        ),
        "processor.condition": Code(
            "nack", "a condition raised on this record, in Spark", "`try_cast` and the like, or leave it"
        ),
        "processor.error": Code(
            "nack", "a Python processor raised; the text is its exception", "correct function or record"
        ),
        "processor.rejected": Code(
            "nack", "a function returned `Reject` or raised `Rejected` without a code, or the `error` processor matched"
        ),
        "processor.value": Code(
            "nack",
            "a typed payload holds what Python has no value for: a year outside 1 to 9999, text that is not "
            "UTF-8, a map with a key twice",
            "keep such fields from Python: use `sql`, or `columns`",
        ),
        "processor.result": Code(
            "nack",
            "a function returned something that is no record, `DROP` or `Reject`",
            "return one; `None` is not a filter",
        ),
        "processor.parts": Code("nack", "a record was split into too many parts, or once too often", "split it less"),
        "expect.failed": Code("nack", "a record does not meet the rule of an `expect`"),
        "expect.stop": Code(
            "nack",
            "the same with `on-fail: stop`: the pipeline stops at the record, whatever the window",
            "correct the record or the rule",
        ),
        "condition.error": Code(
            "nack",
            "a Go template can't be evaluated for this record, or a condition writes no boolean",
            "correct the template or the record",
        ),
        "skip.compare": Code(
            "nack", "the field of a `skip` can't be compared with `match`", "correct `match`, or the record"
        ),
        "rename.exists": Code("nack", "a field can't be renamed: the new name is taken"),
        "split.not-a-list": Code("nack", "the field of a `split` is no list"),
        "base64.invalid": Code("nack", "a value is no base64, or can't be encoded"),
        "unwrap.invalid": Code(
            "nack",
            "a payload is not the kind of record that is unwrapped",
            "look at the dead letter: it has the payload as it came",
        ),
        "processor.not-an-object": Code("nack", "a payload that has to be an object is none"),
        "json.not-an-object": Code("nack", "valid JSON, but no object"),
        "json.invalid": Code("nack", "the payload is no JSON"),
        "csv.invalid": Code(
            "nack",
            "a line of CSV has more or fewer values than there are columns, a quote that is not closed, or is not"
            " UTF-8",
        ),
        "schema.mismatch": Code(
            "nack",
            "a field of the payload does not fit the `schema`: it is named, with what was there",
            "correct the record, or widen the type",
        ),
        "record.too-large": Code(
            "nack",
            "a record has more bytes than `max-record-bytes`. Its batch is read a second time so that only this "
            "record is given up",
            "raise `batch: {max-record-bytes: …}`, with memory for it",
        ),
        "sql.value": Code(
            "nack", "an expression over an open payload raised as Spark would", "the error names the field"
        ),
        "sql.unmatched": Code(
            "nack", "an expression whose answer might differ from Spark's", "give the payload a schema"
        ),
        "sql.null": Code("nack", "a NULL for metadata, which holds only text", "use `coalesce`"),
        "destination.unfit": Code(
            "nack", "the destination can't hold this payload: none at all, or a line break in a text file"
        ),
        "destination.refused": Code(
            "nack", "the destination refused the record while it was committed, without a code of its own"
        ),
        "batch.killed": Code(
            "nack",
            "processing this record, or this file where it can't be cut, ends the process. Without payload",
            "look at the record by its position",
        ),
    },
    "Connectors in a process of their own": {
        "host.gone": Code("retry", "the process of a connector has ended; it is started again", "see why in the log"),
        "host.plugin": Code("stop, retry", "what a plugin program said, or that it is gone", "do what its words say"),
        "host.connector": Code("stop", "an error of a connector that it did not expect", "tell its author"),
        "host.open": Code("stop", "a connector was to be opened twice", "restart the pipeline, and report it"),
        "host.position": Code(
            "stop", "the last record of a log can't be read, so its source can't go on", "`penstock log verify`"
        ),
        "host.unfit-record": Code(
            "stop", "a source gave a record that no commit log can hold", "change it where it comes from"
        ),
        "lines.position": Code("stop", "`lines` was given a position that it never gave", "reset the source"),
        "lines.path": Code("stop", "the path of `lines` is no file that can be read", "see to the path and its rights"),
        "lines.long": Code("stop", "a line is longer than `max-line-bytes`", "raise it, or set `long-lines: split`"),
        "lines.lost": Code(
            "stop",
            "the file in which `lines` stopped is gone, with lines that were not read",
            "put it back, unpacked; or set `on-loss: continue` to go on without them",
        ),
        "file.position": Code("stop", "`file` was given a position that is no number", "reset the source"),
        "file.path": Code("stop", "the path of `file` is no file that can be read or written", "see to the path"),
        "file.write": Code("stop", "`file` can't write", "see to the space and the rights"),
        "file.value": Code("nack", "a record that `file` has no JSON for: NaN, infinity", "change it by a processor"),
        "stdin.standalone": Code("stop", "`stdin` runs as a plugin program, which has no input", "use it built in"),
        "stdout.standalone": Code(
            "stop", "`stdout` runs as a plugin program, whose output is taken", "use it built in"
        ),
        "stdout.closed": Code("stop", "the reader of standard output is gone", "start both again"),
        "stdout.blocked": Code(
            "stop", "nobody read standard output when a stop came", "what was not written comes again"
        ),
        "stdout.write": Code("stop", "standard output can't be written", "see where it leads"),
        "stdout.value": Code("nack", "a record that `stdout` has no JSON for", "change it by a processor"),
        "wire.schema": Code(
            "nack", "a payload does not fit its Avro schema, or nobody knows that schema", "look at who wrote it"
        ),
    },
    "Numbers that do not add up": {
        "account.mismatch": Code(
            "stop",
            "what was read is not what was staged, filtered and dead-lettered; nothing was delivered",
            "look for a batch function that returns another number of rows than it was given; else start again; "
            "if it stays, it is a bug in a connector or in Penstock",
        ),
        "account.commit": Code(
            "stop",
            "a destination wrote and refused another number of records than were staged; nothing was acked",
            "a bug in the destination",
        ),
        "engine.unexpected": Code("stop", "an error that nobody has foreseen", "run with `--debug`"),
    },
    "`files`": {
        "files.loop": Code("stop", "`move-to` is the folder that is read", "name another folder"),
        "files.name": Code("stop", "a file name in the source folder is not UTF-8", "rename the file or move it away"),
        "files.missing": Code("stop", "the source's path does not exist", "create it or correct `path`"),
        "files.unreadable": Code("stop", "the source's folder can't be listed", "check path and permissions"),
        "files.not-writable": Code(
            "stop",
            "the destination's folder can't be written, or `move-to` can't be made",
            "check path, permissions and space",
        ),
        "files.changed": Code(
            "stop",
            "a file changed after it was taken",
            "see [a file changed](../how-to/stop-and-recover.md#a-file-changed)",
        ),
        "files.codec": Code(
            "stop",
            "a compression that is not read",
            "use `.gz`, `.zst` or none; a name that ends in `.tmp` leaves the file out",
        ),
        "files.column": Code(
            "stop",
            "a Parquet file does not have a column that `columns` asks for",
            "correct `columns`; `why` lists those that it has",
        ),
        "files.unreadable-file": Code(
            "nack",
            "a file can't be read to its end, or not at all: a damaged `.gz`, a Parquet file without its footer, "
            "a CSV header that names a column twice or not as the `schema` does. It becomes one dead letter that "
            "names it; the files around it are delivered",
            "let the gate allow it; or repair it, or move it away and set `on-change: reread`, so that its batch "
            "is taken anew",
        ),
        "files.plan": Code(
            "stop",
            "Spark would read other files than the batch has",
            "start again; if it stays, look at unusual characters in names",
        ),
        "files.incomplete": Code(
            "stop",
            "Spark read fewer or more bytes than the files have; nothing was delivered",
            "check the file system; start again",
        ),
        "files.staged": Code(
            "stop", "the staged files are not what went in; nothing was delivered", "check the file system; start again"
        ),
        "files.publish": Code(
            "stop",
            "prepared files could not be renamed",
            "make the folder writable, or restore what was removed under `_penstock`; start again",
        ),
        "files.after-ack": Code(
            "stop",
            "a delivered file could not be moved or deleted",
            "make the folder writable, or use `after-ack: keep`",
        ),
    },
}
