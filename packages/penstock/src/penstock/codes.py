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
        "config.no-log": Code("refused", "`log` beside a connector that goes through none", "leave it out"),
        "config.no-ordering": Code(
            "refused",
            "`ordering` beside a connector that is no destination in a process of its own",
            "leave it out: records arrive in the order of their source",
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
        "trace.which": Code(
            "refused",
            "it was not said which record is to be traced, or in two ways",
            "give one of `--id`, `--position`, `--offset` and `--key`",
        ),
        "trace.id": Code("refused", "`--id` is no id of a record", "an id has 32 hexadecimal digits"),
        "trace.bytes": Code(
            "refused", "what follows `hex:` or `base64:` is not that", "correct it, or leave the prefix out"
        ),
        "trace.no-log": Code(
            "refused",
            "`--offset`, and no source of the state folder has a commit log",
            "name the record by its `--position`",
        ),
        "dlq.which": Code(
            "refused",
            "it was not said which dead letters are meant, or why",
            "give ids, or `--all` with or without `--pipeline`, `--source` and `--code`; and a `--reason`",
        ),
        "dlq.where": Code(
            "refused",
            "`--where` is not one SQL condition over the columns that there are",
            "see the message: it lists the columns",
        ),
        "dlq.not-here": Code(
            "refused",
            "`dlq replay --run` names no pipeline that has dead letters like that",
            "name the file that has the pipeline, with the id that it had",
        ),
        "dlq.running": Code(
            "refused",
            "`dlq replay --run` while an engine has the state folder",
            "leave `--run` out: that engine replays",
        ),
        "skip.which": Code(
            "refused",
            "it was not said which record is to be skipped",
            "give one of `--offset`, `--position` and `--id`",
        ),
        "skip.settled": Code(
            "refused",
            "a record that is to be skipped is delivered, being delivered, or a dead letter",
            "`penstock trace` says what became of it; `penstock dlq drop` is for dead letters",
        ),
        "skip.unknown": Code(
            "refused",
            "nothing is known of a record that is to be skipped",
            "name it by `--offset` or `--position`, as `penstock trace` and `penstock dlq show` show them",
        ),
        "dlq.held": Code(
            "refused",
            "a record that is held can't be dropped: its pipeline waits there",
            "correct the cause and run the pipeline again, or let bad records become dead letters",
        ),
        "dlq.export": Code("refused", "the file of an export can't be written", "name another file with `--to`"),
        "internal.error": Code(
            "stop",
            "a command met an error that nobody has foreseen",
            "run the same as `penstock --debug …` to see where, and report it; the next run goes on where this one stopped",
        ),
    },
    "Operating pipelines": {
        "control.no-engine": Code(
            "refused",
            "no engine listens on the state folder: none runs, or one that runs with `--once` or on another machine",
            "start one with `penstock run`, or wait for the end of the one that runs",
        ),
        "control.silent": Code(
            "refused", "the engine has not answered in time, or ended meanwhile", "look whether it runs, and try again"
        ),
        "control.request": Code(
            "refused", "the engine did not understand what it was asked", "use the `penstock` that runs the engine"
        ),
        "control.failed": Code(
            "refused", "the engine failed at what it was asked for", "see why; it goes on as before"
        ),
        "control.unknown-pipeline": Code(
            "refused", "the running engine has no pipeline with this id", "use one of those that are listed"
        ),
        "control.stopping": Code(
            "refused", "the pipeline is still stopping", "wait for it with `penstock pipelines stop`"
        ),
        "control.running": Code(
            "refused",
            "a pipeline that runs can't go back",
            "`penstock pipelines stop` it first, and start it afterwards",
        ),
        "control.ending": Code("refused", "the engine is about to end", "start it again with `penstock run`"),
        "control.objects": Code(
            "refused",
            "connectors that are objects of a program can't be made again in the same engine",
            "run the program again",
        ),
        "rewind.to": Code(
            "refused",
            "`--to` is no beginning, offset or time",
            "write `beginning`, `17`, `topic/0=17` or `2026-01-31T12:00:00Z`",
        ),
        "rewind.source": Code(
            "refused", "an offset for a pipeline with several sources", "name the source with `--source`"
        ),
        "rewind.no-file": Code(
            "refused",
            "only the source knows what this offset or time is, and its pipeline's file was not found",
            "name it with `--file`",
        ),
        "rewind.unsupported": Code(
            "refused", "the source can't go back to such a place", "the hint says where it can go back to"
        ),
        "rewind.gone": Code(
            "refused",
            "records from there on are not all there any more: compacted away, or deleted by Kafka",
            "the oldest place there is, is named",
        ),
        "rewind.ahead": Code(
            "refused",
            "a place that was not read yet: what is before it would never be delivered",
            "go back to a place that was read",
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
            "refused",
            "a rewind or a reset while a batch is unfinished or not acked, or dead letters are being replayed",
            "run the pipeline with `--once` first",
        ),
        "state.fenced": Code("stop", "another engine has taken the folder over", "run one engine per folder"),
        "state.destination-gone": Code(
            "stop",
            "work is prepared for a destination that the pipeline does not have any more, or that was an object "
            "of a program",
            "`--finish`, `--abandon ID`, or put it back until that work is finished",
        ),
        "reconcile.unexpected": Code(
            "warning",
            "`penstock reconcile` could not ask a destination, for a reason that it does not know",
            "correct what is said to be wrong and ask again; the others were asked",
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
        "log.other": Code("stop", "the log is another one than the batch was taken from", "put the right one back"),
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
        "spark.package": Code(
            "refused",
            "a Java package that a connector needs is not there: it can't be fetched, there is none for this Spark, or the session that was"
            " brought has none",
            "see `why`; without a network give the jars with `--conf spark.jars=`, see [delta](delta.md#the-package)",
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
        "test.hosted": Code(
            "refused",
            "`--dry-run` with a source in a process of its own",
            "use `penstock test`, or another state folder",
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
        "record.skipped": Code("nack", "a destination had refused it, and a person wanted it to be skipped"),
        "replay.destination-gone": Code(
            "nack",
            "a dead letter could not be replayed: its destination is not in the pipeline any more",
            "put the destination back and replay it again, or drop it: `penstock dlq drop`",
        ),
        "replay.no-record": Code(
            "nack",
            "a dead letter could not be replayed: its record is not kept, or its file is gone from the state folder",
            "put the file back, or put the record into the source anew; then drop the dead letter",
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
            "nack",
            "the destination can't hold this payload: none at all, or a line break in a text file; or the record can't be sent to its"
            " process: a value that has no form on the way, or more bytes than a plugin program takes",
        ),
        "destination.refused": Code(
            "nack",
            "the destination refused the record while it was committed or written, without a code of its own; the text is its own",
        ),
        "dlq.refused": Code(
            "stop",
            "the dead letter queue refused a dead letter; the record is in the state folder, and its source is not acked",
            "correct the queue and start again",
        ),
        "batch.shape": Code(
            "stop",
            "a source gives payloads of a shape that a processor or a destination can't take",
            "see the hint: json.decode, json.encode or a schema",
        ),
        "batch.killed": Code(
            "nack",
            "processing this record, or this file where it can't be cut, ends the process. Without payload",
            "look at the record by its position",
        ),
    },
    "Connectors in a process of their own": {
        "host.memory": Code(
            "stop", "the file that remembers a connector's settings can't be read", "put it back, or remove it"
        ),
        "host.log-behind": Code(
            "stop", "a log is shorter than what was read from it", "put the whole state folder back, not parts of it"
        ),
        "host.other-plugin": Code(
            "stop", "a connector has another plugin than the one that wrote its log", "give it another id"
        ),
        "host.hangs": Code(
            "retry", "a connector did not answer a call in time; its process was ended", "see what it waits for"
        ),
        "host.gone": Code("retry", "the process of a connector has ended; it is started again", "see why in the log"),
        "host.plugin": Code("stop, retry", "what a plugin program said, or that it is gone", "do what its words say"),
        "host.connector": Code("stop", "an error of a connector that it did not expect", "tell its author"),
        "host.open": Code("stop", "a connector was to be opened twice", "restart the pipeline, and report it"),
        "host.acks": Code(
            "stop",
            "a destination has answered a record twice, or one that it was never sent",
            "tell its author; what it has not answered is sent again at the next start",
        ),
        "host.marks": Code(
            "stop",
            "what a destination has answered was written down by a newer Penstock",
            "finish this delivery with that one",
        ),
        "host.locked": Code(
            "retry",
            "another host of the same destination is still there, most often of an engine that was killed a moment ago",
            "if it stays, look for a `penstock.host` process that is left and end it",
        ),
        "host.superseded": Code(
            "retry",
            "rows were sent by a Spark task that was not the newest any more",
            "nothing: what the destination has not answered is sent again",
        ),
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
        "lines.not-writable": Code(
            "stop",
            "the destination's file can't be appended to",
            "check path, permissions and space",
        ),
        "lines.account": Code(
            "stop",
            "the staged lines are not what went in; nothing was delivered",
            "check the file system; start again",
        ),
        "lines.staged": Code(
            "stop",
            "staged lines are gone, or shorter than they were",
            "restore what was removed beside the file; start again",
        ),
        "queue.account": Code(
            "stop",
            "the staged records are not what the batch holds; nothing was delivered",
            "check the file system, then start again",
        ),
        "queue.append": Code(
            "stop",
            "prepared records could not be appended to a queue",
            "make its folder writable and room on its disk; start again, it goes on where it stopped",
        ),
        "queue.behind": Code(
            "stop",
            "a queue ends before what was read from it: it was put back from an older copy",
            "put the newer one back, or give the source another id to read all of it",
        ),
        "queue.changed": Code(
            "stop",
            "another queue has the name of the one that a delivery was being appended to",
            "put it back; see [queue](queue.md#what-lies-beside-it)",
        ),
        "queue.locked": Code(
            "retry",
            "another program has the queue's log open for writing",
            "wait, or end it",
        ),
        "queue.no-folder": Code("stop", "a queue is a folder, and there is a file", "correct `path`"),
        "queue.not-writable": Code(
            "stop",
            "the queue's folder can't be made or written to",
            "check the path, its permissions and free space",
        ),
        "queue.staged": Code(
            "stop",
            "what was staged for a queue is not there as it was",
            "put the folder beside the queue back as it was",
        ),
        "lines.append": Code(
            "stop",
            "prepared lines could not be appended",
            "make the file writable and room on its disk; start again, it goes on where it stopped",
        ),
        "lines.changed": Code(
            "stop",
            "the file was rotated, replaced, shortened or written to while a delivery was being appended and the engine ended",
            "see [when others change the file](lines.md#when-others-change-the-file)",
        ),
        "journal.fenced": Code(
            "stop",
            "a newer engine on the same state folder has appended already",
            "end this one",
        ),
        "journal.version": Code(
            "stop",
            "the journal beside the file or queue is of another version",
            "finish the delivery with the version that has begun it",
        ),
        "delta.not-writable": Code(
            "stop", "the folder of the table can't be written", "check the path, its permissions and free space"
        ),
        "delta.table": Code(
            "stop", "Spark's catalog has no such Delta table", "make it there, or give its folder in `path`"
        ),
        "delta.schema": Code(
            "stop",
            "the table can't take the fields of the records: a column is missing, has another type, or another partitioning",
            "change the table or the fields; `merge-schema: true` adds columns that are missing",
        ),
        "delta.key": Code("stop", "the key is not in the records", "correct `key`"),
        "delta.payload": Code(
            "stop",
            "a dead letter queue gives objects that differ, and a table has columns",
            "use `files` or `lines` there",
        ),
        "delta.constraint": Code(
            "stop",
            "a row does not keep a rule of the table: `NOT NULL`, `CHECK`, a length",
            "nothing of the batch was written; change the rule, then start again",
        ),
        "delta.conflict": Code(
            "retry", "somebody else has changed the table at the same time", "nothing: it is tried again"
        ),
        "delta.staged": Code(
            "stop",
            "staged files are gone, or have another size",
            "restore what was removed under `_penstock` in the folder of the table",
        ),
        "delta.fenced": Code("stop", "a newer engine on the same state folder has written already", "end this one"),
        "delta.ahead": Code(
            "stop",
            "the table has later batches of this source than the ledger",
            "if the state folder was restored from a backup, restore the table too, or begin with a new state folder",
        ),
        "delta.lost": Code(
            "stop",
            "Delta has made a commit, and it is not in the log of the table",
            "look at the history of the table before you start again",
        ),
        "delta.version": Code("stop", "the table has commits of a newer version of Penstock", "use that version"),
        "postgres.client": Code(
            "stop",
            "psycopg is not installed",
            "`pip install 'penstock[postgres]'`",
        ),
        "postgres.access": Code(
            "stop",
            "the database does not let us in, or the user may not do what is needed",
            "check user, password and rights; `why` and `do` say which",
        ),
        "postgres.type": Code(
            "stop",
            "a field has a type that Postgres has not",
            "leave it out, or make something else of it with a processor",
        ),
        "postgres.table": Code(
            "stop",
            "there is no such table",
            "make it, or set `create: true`",
        ),
        "postgres.columns": Code(
            "stop",
            "the table has no column for a field of the records",
            "add the column, or leave the field out",
        ),
        "postgres.key": Code(
            "stop",
            "the key is not in the records, or the table has no unique index on it",
            "correct `key`, or make the index; the error has the statement",
        ),
        "postgres.staged": Code(
            "stop",
            "what tasks have copied is not there, or not whole",
            "start again; if the staging table is gone, restore the database",
        ),
        "postgres.fenced": Code(
            "stop",
            "a newer engine on the same state folder has written already",
            "end this one",
        ),
        "postgres.version": Code(
            "stop",
            "the bookkeeping tables are of a newer version",
            "use that version, or another schema in `bookkeeping`",
        ),
        "postgres.failed": Code(
            "stop",
            "Postgres refuses a statement for a reason that is no row's",
            "see what it says; nothing of the batch was written",
        ),
        "postgres.connection": Code(
            "retry",
            "the database can't be reached, or has ended the connection",
            "see that it runs and can be reached; it is tried again",
        ),
        "postgres.row": Code(
            "nack",
            "the table does not take this row: a constraint, a value out of range, a trigger. The nack has the words of Postgres",
            "correct the data or the table, then replay the dead letter",
        ),
        "jdbc.driver": Code(
            "stop",
            "Spark does not have the JDBC driver, or the driver does not take the url",
            "see [drivers](jdbc.md#drivers-and-other-databases)",
        ),
        "jdbc.connection": Code(
            "retry",
            "the database can't be reached, or has ended the connection",
            "see that it runs and can be reached; it is tried again",
        ),
        "jdbc.access": Code(
            "stop",
            "the database does not let us in, or the user may not read the table",
            "check user, password, database and rights",
        ),
        "jdbc.unknown": Code(
            "stop",
            "a table, a column or something in a query does not exist",
            "correct `table`, `query`, `key` or `incremental`: names are as the database stores them",
        ),
        "jdbc.key": Code(
            "stop",
            "a column of `key` or `incremental` gives no order: rows are NULL in it, two rows are the same, or its type does not serve",
            "see [keys](jdbc.md#keys-and-tasks) and [what is new](jdbc.md#once-or-what-is-new)",
        ),
        "jdbc.changed": Code(
            "stop",
            "rows of a batch changed between its planning and its end; nothing of it was delivered",
            "see [rows that change](jdbc.md#rows-that-change-while-they-are-read)",
        ),
        "jdbc.other": Code(
            "stop",
            "the source has read another table so far, or by other columns",
            "give it another `id`, or put `table`, `key` and `incremental` back",
        ),
        "jdbc.failed": Code("stop", "the database refuses a statement for another reason", "see what it says"),
        "kafka.client": Code("stop", "confluent-kafka is not installed", "`pip install 'penstock[kafka]'`"),
        "kafka.package": Code(
            "stop",
            "Spark can't get a jar that its package for Kafka needs",
            "see that Maven Central can be reached, or give the jars with `--conf spark.jars=…`",
        ),
        "kafka.connection": Code(
            "retry",
            "Kafka can't be reached, does not answer, or has no leader for a partition",
            "see that its brokers run, that `servers` is right and that the addresses they advertise can be reached; it is tried again",
        ),
        "kafka.access": Code(
            "stop",
            "Kafka does not let us in, or the user lacks a right",
            "check the `sasl…` settings and the user's rights",
        ),
        "kafka.tls": Code(
            "stop",
            "no encrypted connection comes about",
            "check `tls.enabled`, the certificates, and that the port is the one for TLS",
        ),
        "kafka.unknown-topic": Code("stop", "a topic does not exist", "correct its name, or create it"),
        "kafka.start": Code(
            "stop",
            "`start-offsets` names other partitions than there are",
            "see [where reading begins](kafka.md#where-reading-begins)",
        ),
        "kafka.gone": Code(
            "stop",
            "a topic was deleted that has been read",
            "see [what Kafka no longer has](kafka.md#what-kafka-no-longer-has)",
        ),
        "kafka.recreated": Code(
            "stop",
            "a topic was deleted and made anew under the same name",
            "see [what Kafka no longer has](kafka.md#what-kafka-no-longer-has)",
        ),
        "kafka.other-cluster": Code(
            "stop", "`servers` leads to another cluster than before", "put it back, or give the source another `id`"
        ),
        "kafka.lost": Code(
            "stop",
            "records were deleted, by retention or by hand, before they were read",
            "see [what Kafka no longer has](kafka.md#what-kafka-no-longer-has)",
        ),
        "kafka.short": Code(
            "retry",
            "a partition is shorter than it was, for less than five seconds: a broker that was just started may say so",
            "it is looked at again; what stays so is `kafka.backwards`",
        ),
        "kafka.backwards": Code(
            "stop",
            "a partition ends before what was read from it, or before `start-offsets`",
            "see [what Kafka no longer has](kafka.md#what-kafka-no-longer-has)",
        ),
        "kafka.changed": Code(
            "stop",
            "Spark gave other records than the offsets of the batch hold; nothing of it was delivered",
            "run again; if it stays, it is a bug",
        ),
        "kafka.partitions": Code("stop", "a source has seen more than 524,288 partitions", "give it another `id`"),
        "kafka.failed": Code("stop", "Kafka refuses something for another reason", "see what it says"),
        "kafka.write": Code(
            "retry, stop",
            "records could not be written: a server is away, or another writer has taken over; or a right is missing",
            "it is tried again, or `do` says what to change; nothing is written twice",
        ),
        "kafka.blocked": Code(
            "retry",
            "another producer has a transaction open, and behind it it can't be seen what is there already",
            "it is waited for",
        ),
        "kafka.account": Code(
            "stop",
            "the staged records are not what the batch holds; nothing was delivered",
            "check the file system, then start again",
        ),
        "kafka.staged": Code(
            "stop", "what was staged is gone from the state folder", "restore the state folder, then start again"
        ),
        "kafka.fenced": Code("stop", "a newer engine on the same state folder has written already", "end this one"),
        "kafka.version": Code("stop", "the state folder has a file of another version of Penstock", "use that version"),
        "kafka.topic": Code(
            "nack", "there is no such topic, or it is no name of one", "make it, or correct the namespace or `topic`"
        ),
        "kafka.too-large": Code(
            "nack",
            "the record is larger than `batchBytes`, or than the topic takes",
            "raise `batchBytes` and `max.message.bytes`",
        ),
        "kafka.refused": Code(
            "nack", "the topic does not take the record, e.g. one without a key if it is compacted", "see what it says"
        ),
        "kafka.value": Code("nack", "the record has no form as JSON", "see what it says, and shape it with processors"),
    },
}
