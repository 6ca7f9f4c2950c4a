"""What psycopg 3 sees, in text and in binary: types, pipelines, COPY, cursors on the server, two-way streams, asyncio. Fails with a traceback."""

import asyncio
import datetime
import decimal
import sys
import uuid

import psycopg
from psycopg import sql
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

WHERE = f"host=127.0.0.1 port={sys.argv[1]} user=postgres dbname=postgres"
UTC = datetime.timezone.utc
COLUMNS = {
    "small": ("smallint", -32768),
    "number": ("integer", 2**31 - 1),
    "big": ("bigint", -(2**63)),
    "exact": ("numeric(20, 5)", decimal.Decimal("-123456789012345.67891")),
    "single": ("real", 0.5),
    "double": ("double precision", 1e300),
    "words": ("text", "Grüße, 世界 \U0001f600 '\\"),
    "few": ("varchar(10)", "x" * 10),
    "bytes": ("bytea", bytes(range(256))),
    "day": ("date", datetime.date(2024, 2, 29)),
    "clock": ("time", datetime.time(23, 59, 59, 999999)),
    "moment": ("timestamp", datetime.datetime(1999, 12, 31, 23, 59, 59, 1)),
    "instant": ("timestamptz", datetime.datetime(2020, 5, 6, 7, 8, 9, tzinfo=UTC)),
    "span": ("interval", datetime.timedelta(days=3, seconds=5, microseconds=7)),
    "truth": ("boolean", True),
    "mark": ("uuid", uuid.UUID("01234567-89ab-cdef-0123-456789abcdef")),
    "thing": ("jsonb", {"a": [1, 2, {"b": None}]}),
    "numbers": ("integer[]", [1, None, 3]),
    "texts": ("text[]", ["a,b", 'c"d', None, ""]),
}


def values(connection):
    create = sql.SQL("create table everything (id integer primary key, {})").format(
        sql.SQL(", ").join(sql.SQL(f"{{}} {kind}").format(sql.Identifier(name)) for name, (kind, _) in COLUMNS.items())
    )
    connection.execute(create)
    expected = [value for _, value in COLUMNS.values()]
    sent = [Jsonb(value) if isinstance(value, dict) else value for value in expected]
    marks = ", ".join(["%b"] * len(sent))
    connection.execute(f"insert into everything values (1, {marks})", sent)
    marks = ", ".join(["%t"] * len(sent))
    connection.execute(f"insert into everything values (2, {marks})", sent)
    for binary in (False, True):
        with connection.cursor(binary=binary) as cursor:
            for row in cursor.execute("select * from everything order by id").fetchall():
                differing = [(a, b) for a, b in zip(row[1:], expected) if a != b]
                assert not differing, (binary, differing)
    connection.commit()
    print("values")


def errors(connection):
    for statement, error in (
        ("insert into everything (id) values (1)", psycopg.errors.UniqueViolation),
        ("select * from nowhere", psycopg.errors.UndefinedTable),
        ("select 1 / 0", psycopg.errors.DivisionByZero),
        ("select 'x'::integer", psycopg.errors.InvalidTextRepresentation),
    ):
        try:
            connection.execute(statement)
        except error as found:
            assert found.diag.sqlstate and found.diag.message_primary
            connection.rollback()
        else:
            raise AssertionError(f"{statement} succeeded")
    with connection.transaction():
        connection.execute("insert into everything (id) values (10)")
        try:
            with connection.transaction():
                connection.execute("insert into everything (id) values (11)")
                raise ValueError
        except ValueError:
            pass
    assert connection.execute("select array_agg(id) from everything where id >= 10").fetchone() == ([10],)
    connection.commit()
    print("errors")


def bulk(connection):
    connection.execute("create table bulk (id integer primary key, word text, day date)")
    with connection.cursor() as cursor:
        for options in ("", " (format binary)"):
            start = 0 if options == "" else 1000
            with cursor.copy(f"copy bulk from stdin{options}") as copy:
                if options:
                    copy.set_types(["int4", "text", "date"])
                for i in range(start, start + 1000):
                    copy.write_row((i, None if i % 7 == 0 else f"word\t{i}", datetime.date(2000, 1, 1)))
            with cursor.copy(f"copy (select * from bulk order by id) to stdout{options}") as copy:
                copy.set_types(["int4", "text", "date"])
                rows = list(copy.rows())
            assert len(rows) == start + 1000 and rows[8] == (8, "word\t8", datetime.date(2000, 1, 1)) and rows[7][1] is None
        cursor.executemany("update bulk set word = %s where id = %s returning id", [("new", i) for i in range(50)], returning=True)
        assert cursor.fetchone() == (0,)
    with connection.pipeline(), connection.cursor() as cursor:
        found = [connection.execute("select word from bulk where id = %s", [i]) for i in range(100)]
        assert [each.fetchone()[0] for each in found[:50]] == ["new"] * 50
    with connection.cursor("named", row_factory=dict_row) as cursor:
        cursor.itersize = 100
        cursor.execute("select id from bulk order by id")
        assert sum(row["id"] for row in cursor) == sum(range(2000))
    # Statements that are used often are prepared on the server, and the server's definitions may change below them.
    for i in range(10):
        assert len(connection.execute("select * from bulk where id = %s", [i]).fetchone()) == 3
    connection.execute("alter table bulk add column more integer default 5")
    assert len(connection.execute("select * from bulk where id = %s", [1]).fetchone()) == 4
    connection.commit()
    print("bulk")


async def asynchronously():
    async with await psycopg.AsyncConnection.connect(WHERE, autocommit=True) as connection:
        sleeper = asyncio.create_task(connection.execute("select pg_sleep(60)"))
        await asyncio.sleep(0.3)
        connection.cancel()
        try:
            await sleeper
        except psycopg.errors.QueryCanceled:
            pass
        else:
            raise AssertionError("not cancelled")
        async with connection.cursor() as cursor:
            async for (i,) in cursor.stream("select generate_series(1, 3)"):
                assert i in (1, 2, 3)
    print("async")


with psycopg.connect(WHERE) as connection:
    assert connection.info.server_version >= 150000, connection.info.server_version
    values(connection)
    errors(connection)
    bulk(connection)
asyncio.run(asynchronously())
