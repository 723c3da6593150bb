"""What no expression may hold, by the names of functions: what differs from attempt to attempt, and what needs other records.

Asked while a text is read (`text`), for open payloads and for Spark alike, before anything is started. It looks at words
and not at a tree: a word before a bracket is a function wherever it stands.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot.tokenizer_core import Token, TokenType

from penstock.plan.sql.errors import ExpressionError

CLOCK = frozenset({"now", "current_timestamp", "current_date", "localtimestamp", "curdate", "current_time"})
CHANGING = frozenset(
    {
        "rand", "random", "randn", "uuid", "shuffle", "randstr", "uniform", "monotonically_increasing_id",
        "spark_partition_id", "input_file_name", "input_file_block_start", "input_file_block_length",
        "current_user", "session_user", "user", "reflect", "java_method", "try_reflect",
    }
)  # fmt: skip
_WITHOUT_BRACKETS = CLOCK | {"current_user", "session_user"}
_SPECIAL_DAYS = frozenset({"now", "today", "tomorrow", "yesterday"})  # TIMESTAMP 'now' is read when the query is
_TIMES = frozenset({"timestamp", "timestamp_ntz", "timestamp_ltz", "date"})


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# The groups `agg_funcs`, `window_funcs`, `generator_funcs` and the table functions of Spark 4.2; a test compares.
AGGREGATES = _names(
    """
    any any_value approx_count_distinct approx_percentile approx_top_k approx_top_k_accumulate approx_top_k_combine array_agg
    avg bit_and bit_or bit_xor bitmap_and_agg bitmap_construct_agg bitmap_or_agg bool_and bool_or collect_list collect_set corr
    count count_if count_min_sketch covar_pop covar_samp every first first_value grouping grouping_id histogram_numeric
    hll_sketch_agg hll_union_agg kll_merge_agg_bigint kll_merge_agg_double kll_merge_agg_float kll_sketch_agg_bigint
    kll_sketch_agg_double kll_sketch_agg_float kurtosis last last_value listagg max max_by mean measure median min min_by mode
    percentile percentile_approx percentile_cont percentile_disc regr_avgx regr_avgy regr_count regr_intercept regr_r2
    regr_slope regr_sxx regr_sxy regr_syy skewness some std stddev stddev_pop stddev_samp string_agg sum
    theta_intersection_agg theta_sketch_agg theta_union_agg try_avg try_sum tuple_intersection_agg_double
    tuple_intersection_agg_integer tuple_sketch_agg_double tuple_sketch_agg_integer tuple_union_agg_double
    tuple_union_agg_integer var_pop var_samp variance
    """
)
WINDOWS = _names(
    "cume_dist dense_rank lag lead nth_value ntile percent_rank rank row_number window session_window window_time"
)
GENERATORS = _names(
    "explode explode_outer inline inline_outer posexplode posexplode_outer stack json_tuple"
    " variant_explode variant_explode_outer"
)
_QUERY = frozenset({"select", "from", "where", "having", "group", "order", "limit", "union", "intersect", "lateral"})
_LIKE = frozenset({"like", "ilike"})  # LIKE ANY (…) is no aggregate
LITERALS = frozenset({TokenType.STRING, TokenType.NUMBER, TokenType.RAW_STRING, TokenType.HEX_STRING})
OPENING = frozenset({TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE})
CLOSING = frozenset({TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE})


class NotOneRecord(ExpressionError):
    """It is a query, or needs more records than one."""


def refuse_unrepeatable(tokens: Sequence[Token]) -> None:
    """What gives another result on every attempt: a batch that is run again has to come out the same."""
    for i, token in enumerate(tokens):
        word = token.text.lower()
        before = tokens[i - 1] if i else None
        if token.token_type is TokenType.STRING:
            typed = before is not None and before.text.lower() in _TIMES and before.token_type not in LITERALS
            if typed and word.strip().partition(" ")[0] in _SPECIAL_DAYS:
                raise _unrepeatable(f"the time {token.text!r}", token)
            if word == "opencdc.collection" and [t.text.lower() for t in tokens[max(0, i - 2) : i]] == [
                "metadata",
                ",",
            ]:
                what = "the metadata key opencdc.collection is a column of its own here"
                raise ExpressionError(what, hint="write `namespace`", column=token.start + 1)
        elif token.token_type not in LITERALS:
            if _called(tokens, i):
                if word in CLOCK or word in CHANGING:
                    raise _unrepeatable(f"{word}()", token)
                if (word == "unix_timestamp" and _arguments(tokens, i) == 0) or (
                    word == "aes_encrypt" and _arguments(tokens, i) < 5  # without a vector of its own it takes any
                ):
                    raise _unrepeatable(f"{word}()", token)
            elif word in _WITHOUT_BRACKETS and token.token_type is not TokenType.IDENTIFIER and not _is_name(tokens, i):
                raise _unrepeatable(word, token)


def refuse_beyond_a_record(tokens: Sequence[Token]) -> None:
    """Queries, aggregates, window functions, and functions that make several rows of one."""
    depth = 0
    for i, token in enumerate(tokens):
        if token.token_type in OPENING:
            depth += 1
        elif token.token_type in CLOSING:
            depth -= 1
        if token.token_type in LITERALS:
            continue
        word = token.text.lower()
        query = word == "select" or (depth == 0 and word in _QUERY)
        if query and token.token_type is not TokenType.IDENTIFIER and not _is_name(tokens, i):
            raise NotOneRecord("this is a query", hint="write an expression over one record", column=token.start + 1)
        if not _called(tokens, i) or (i and tokens[i - 1].text.lower() in _LIKE):
            continue
        hint = ""
        if word in AGGREGATES:
            what = "needs other records"
            hint = "greatest and least compare fields of one record" if word in ("max", "min") else ""
        elif word in WINDOWS:
            what = "needs other records"
        elif word in GENERATORS:
            what, hint = "makes several rows of one record", "use the processor `split`"
        else:
            continue
        hint = hint or "an expression sees one record at a time"
        raise NotOneRecord(f"{word}() {what}", hint=hint, column=token.start + 1)


def _called(tokens: Sequence[Token], i: int) -> bool:
    return i + 1 < len(tokens) and tokens[i + 1].token_type is TokenType.L_PAREN


def _is_name(tokens: Sequence[Token], i: int) -> bool:
    """A part of a reference, or the name behind AS."""
    before = tokens[i - 1].token_type if i else None
    after = tokens[i + 1].token_type if i + 1 < len(tokens) else None
    return before in (TokenType.DOT, TokenType.ALIAS) or after is TokenType.DOT


def _arguments(tokens: Sequence[Token], i: int) -> int:
    """Of the function at `i`."""
    if i + 2 < len(tokens) and tokens[i + 2].token_type is TokenType.R_PAREN:
        return 0
    depth, commas = 0, 0
    for token in tokens[i + 1 :]:
        depth += (token.token_type in OPENING) - (token.token_type in CLOSING)
        if depth == 0:
            break
        commas += depth == 1 and token.token_type is TokenType.COMMA
    return commas + 1


def _unrepeatable(what: str, token: Token) -> ExpressionError:
    hint = "use `timestamp`, the time of the record" if what not in ("uuid()",) else "use `source`, `seq` and `part`"
    return ExpressionError(f"{what} is not the same when a batch is run again", hint=hint, column=token.start + 1)
