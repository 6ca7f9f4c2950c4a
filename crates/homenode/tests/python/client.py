"""What a program in another language sees: psycopg2 against the server on the port given. Fails with a traceback."""

import datetime
import decimal
import io
import sys
import threading
import uuid

import psycopg2
import psycopg2.errors
import psycopg2.extensions
import psycopg2.extras


def connect():
    return psycopg2.connect(host="127.0.0.1", port=int(sys.argv[1]), user="postgres", dbname="postgres")


def fails(cursor, error, statement, values=None):
    """Runs a statement that has to fail with `error`, and rolls back."""
    try:
        cursor.execute(statement, values)
    except error as found:
        cursor.connection.rollback()
        return found
    raise AssertionError(f"{statement} succeeded")


def values(connection):
    cursor = connection.cursor()
    psycopg2.extras.register_uuid()
    cursor.execute(
        "create table everything (id serial primary key, small smallint, number integer, big bigint, exact numeric(20, 5),"
        " single real, double double precision, words text, letters char(4), few varchar(10), bytes bytea, day date,"
        " clock time, moment timestamp, instant timestamptz, span interval, truth boolean, mark uuid)"
    )
    row = (
        -32768, 2**31 - 1, -(2**63), decimal.Decimal("-123456789012345.67891"), 0.5, 1e300, "Grüße, 世界 \U0001f600 '\\",
        "ab", "x" * 10, bytes(range(256)), datetime.date(2024, 2, 29), datetime.time(23, 59, 59, 999999),
        datetime.datetime(1999, 12, 31, 23, 59, 59, 1), datetime.datetime(2020, 5, 6, 7, 8, 9, tzinfo=datetime.timezone.utc),
        datetime.timedelta(days=3, seconds=5, microseconds=7), True, uuid.UUID("01234567-89ab-cdef-0123-456789abcdef"),
    )
    marks = ", ".join(["%s"] * len(row))
    cursor.execute(f"insert into everything values (default, {marks}) returning id", row)
    assert cursor.fetchone() == (1,)
    cursor.execute(f"insert into everything values (default, {marks}) returning id", [None] * len(row))
    assert cursor.fetchone() == (2,)
    cursor.execute("select * from everything order by id")
    first, second = cursor.fetchall()
    found = tuple(bytes(value) if isinstance(value, memoryview) else value for value in first[1:])
    expected = row[:7] + ("ab  ",) + row[8:]
    assert found == expected, [(a, b) for a, b in zip(found, expected) if a != b]
    assert second == (2,) + (None,) * len(row)
    names = [column.name for column in cursor.description]
    assert names[:4] == ["id", "small", "number", "big"], names
    assert [column.type_code for column in cursor.description][:5] == [23, 21, 23, 20, 1700]
    connection.commit()


def errors(connection):
    cursor = connection.cursor()
    cursor.execute("create table unique_name (id int primary key, name text not null unique)")
    cursor.execute("insert into unique_name values (1, 'one')")
    connection.commit()
    found = fails(cursor, psycopg2.errors.UniqueViolation, "insert into unique_name values (1, 'two')")
    assert found.diag.constraint_name == "unique_name_pkey" and found.diag.table_name == "unique_name"
    assert found.diag.message_detail == "Key (id)=(1) already exists."
    found = fails(cursor, psycopg2.errors.UniqueViolation, "insert into unique_name values (2, 'one')")
    assert found.diag.constraint_name == "unique_name_name_key", found.diag.constraint_name
    found = fails(cursor, psycopg2.errors.NotNullViolation, "insert into unique_name values (3, null)")
    assert found.diag.column_name == "name"
    fails(cursor, psycopg2.errors.UndefinedTable, "select * from nowhere")
    fails(cursor, psycopg2.errors.UndefinedColumn, "select nothing from unique_name")
    fails(cursor, psycopg2.errors.DivisionByZero, "select 1 / %s", (0,))
    fails(cursor, psycopg2.errors.SyntaxError, "selct 1")
    fails(cursor, psycopg2.errors.InvalidTextRepresentation, "select %s::int", ("x",))
    fails(cursor, psycopg2.errors.NumericValueOutOfRange, "select %s::int", (2**40,))
    try:
        psycopg2.connect(host="127.0.0.1", port=int(sys.argv[1]), user="postgres", dbname="no_such_database")
    except psycopg2.OperationalError as found:
        assert 'database "no_such_database" does not exist' in str(found)
    else:
        raise AssertionError("connected to a database that doesn't exist")


def transactions(connection):
    cursor = connection.cursor()
    other = connect()
    other.autocommit = True
    looker = other.cursor()
    cursor.execute("create table steps (n int primary key)")
    connection.commit()
    with connection:
        cursor.execute("insert into steps values (1)")
        looker.execute("select count(*) from steps")
        assert looker.fetchone() == (0,)
    looker.execute("select count(*) from steps")
    assert looker.fetchone() == (1,)
    cursor.execute("insert into steps values (2)")
    cursor.execute("savepoint before")
    cursor.execute("insert into steps values (3)")
    try:
        cursor.execute("insert into steps values (1)")
    except psycopg2.errors.UniqueViolation:
        cursor.execute("rollback to savepoint before")
    cursor.execute("insert into steps values (4)")
    connection.commit()
    looker.execute("select n from steps order by n")
    assert looker.fetchall() == [(1,), (2,), (4,)]
    cursor.execute("delete from steps")
    assert cursor.rowcount == 3
    connection.rollback()
    looker.execute("select count(*) from steps")
    assert looker.fetchone() == (3,)
    # A snapshot that others' commits don't change.
    connection.set_session(isolation_level="REPEATABLE READ", readonly=True)
    cursor.execute("select count(*) from steps")
    assert cursor.fetchone() == (3,)
    looker.execute("insert into steps values (5)")
    cursor.execute("select count(*) from steps")
    assert cursor.fetchone() == (3,)
    fails(cursor, psycopg2.errors.ReadOnlySqlTransaction, "insert into steps values (6)")
    cursor.execute("select count(*) from steps")
    assert cursor.fetchone() == (4,)
    connection.rollback()
    connection.set_session(isolation_level="DEFAULT", readonly=False)
    other.close()


def bulk(connection):
    cursor = connection.cursor()
    cursor.execute("create table bulk (id int primary key, words text)")
    lines = "".join(f"{n}\tline {n}\n" for n in range(5000))
    cursor.copy_expert("copy bulk from stdin", io.StringIO(lines))
    assert cursor.rowcount == 5000, cursor.rowcount
    back = io.StringIO()
    cursor.copy_expert("copy (select id, words from bulk order by id) to stdout", back)
    assert back.getvalue() == lines
    psycopg2.extras.execute_values(cursor, "insert into bulk values %s", [(n, None) for n in range(5000, 6000)])
    cursor.executemany("update bulk set words = %s where id = %s", [("changed", n) for n in range(50)])
    cursor.execute("select count(*), count(words), sum(id) from bulk")
    assert cursor.fetchone() == (6000, 5000, 6000 * 5999 // 2)
    # A cursor on the server gives its rows in portions.
    portions = connection.cursor("portions")
    portions.itersize = 700
    portions.execute("select id from bulk order by id")
    assert [row[0] for row in portions] == list(range(6000))
    portions.close()
    connection.commit()


def cancel(connection):
    cursor = connection.cursor()
    timer = threading.Timer(0.3, connection.cancel)
    timer.start()
    fails(cursor, psycopg2.errors.QueryCanceled, "select pg_sleep(30)")
    timer.join()
    cursor.execute("select 1")
    assert cursor.fetchone() == (1,)
    connection.rollback()


def main():
    connection = connect()
    for step in (values, errors, transactions, bulk, cancel):
        step(connection)
        assert connection.get_transaction_status() == psycopg2.extensions.TRANSACTION_STATUS_IDLE, step
        print(step.__name__)
    connection.close()


main()
