"""Random statements, run on Homenode and on PostgreSQL: do rows, counts and SQLSTATEs agree? Prints the number of statements, and of those
that failed on both; fails at the first difference with the statement, the seed and both answers.

    differential.py HOMENODE_PORT POSTGRES_PORT SEED STATEMENTS
"""

import random
import sys

import psycopg2

TABLES = {
    "a": {"id": "integer", "n": "integer", "t": "text", "d": "date", "x": "numeric(8,2)", "f": "boolean"},
    "b": {"id": "integer", "a_id": "integer", "n": "bigint", "t": "varchar(10)", "m": "timestamp", "j": "jsonb"},
    "c": {"k": "text", "n": "smallint", "a_id": "integer", "list": "integer[]"},
}
KEYS = {"a": "id", "b": "id", "c": "k"}
INDEXES = ["create index on a (n)", "create index on b (a_id, n)", "create index on c (n) where n > 2", "create index on a (lower(t))"]
KINDS = {"integer": "number", "bigint": "number", "smallint": "number", "numeric(8,2)": "number", "text": "text", "varchar(10)": "text",
         "date": "date", "timestamp": "timestamp", "boolean": "boolean", "jsonb": "jsonb", "integer[]": "array"}


class Generator:
    """Statements, by a seed. What it makes gives the same answer in whatever order rows are read."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.aliases = 0

    def choose(self, *options):
        return self.random.choice(options)

    def literal(self, kind):
        if self.random.random() < 0.05:
            return {"number": "null::integer", "text": "null::text", "date": "null::date", "timestamp": "null::timestamp",
                    "boolean": "null::boolean", "jsonb": "null::jsonb", "array": "null::integer[]"}[kind]
        n = self.random.randint(-3, 12)
        return {
            "number": self.choose(str(n), f"{n}.{self.random.randint(0, 99):02}", f"{n}::bigint"),
            "text": f"'{self.choose('', 'a', 'b', 'ab', 'Abc', 'x%', 'ab ')}'",
            "date": f"date '2024-0{self.random.randint(1, 3)}-{self.random.randint(1, 28):02}'",
            "timestamp": f"timestamp '2024-01-{self.random.randint(1, 28):02} {self.random.randint(0, 23):02}:30:00'",
            "boolean": self.choose("true", "false"),
            "jsonb": f"""'{self.choose('1', '"a"', '{"a": 1}', '{"a": [1, 2], "b": null}', '[]', '[1, "a"]')}'::jsonb""",
            "array": f"array[{n}, {self.random.randint(0, 3)}]",
        }[kind]

    def column(self, scope, kind):
        fitting = [name for name, found in scope if found == kind]
        return self.random.choice(fitting) if fitting else self.literal(kind)

    def value(self, scope, kind, depth=2):
        """An expression of the kind that cannot fail."""
        if depth == 0 or self.random.random() < 0.35:
            return self.column(scope, kind) if self.random.random() < 0.75 else self.literal(kind)
        of = lambda kind: self.value(scope, kind, depth - 1)
        common = [lambda: f"coalesce({of(kind)}, {of(kind)})", lambda: f"case when {self.condition(scope, depth - 1)} then {of(kind)} else {of(kind)} end",
                  lambda: f"nullif({of(kind)}, {of(kind)})"]
        own = {
            "number": [lambda: f"({of('number')} {self.choose('+', '-', '*')} {of('number')})", lambda: f"abs({of('number')})",
                       lambda: f"length({of('text')})", lambda: f"extract(day from {of('date')})", lambda: f"({of('date')} - {of('date')})",
                       lambda: f"cardinality({of('array')})", lambda: f"({of('array')})[{self.random.randint(1, 2)}]",
                       lambda: f"round({of('number')} / 3.0, 4)", lambda: f"greatest({of('number')}, {of('number')})"],
            "text": [lambda: f"({of('text')} || {of('text')})", lambda: f"upper({of('text')})", lambda: f"lower({of('text')})",
                     lambda: f"substr({of('text')}, 1, {self.random.randint(0, 3)})", lambda: f"({of('number')})::text",
                     lambda: f"replace({of('text')}, 'a', 'xy')", lambda: f"({of('jsonb')} ->> 'a')", lambda: f"to_char({of('date')}, 'YYYY-MM')"],
            "date": [lambda: f"({of('date')} + {self.random.randint(-9, 9)})", lambda: f"({of('timestamp')})::date"],
            "timestamp": [lambda: f"({of('timestamp')} + interval '{self.random.randint(1, 90)} minutes')",
                          lambda: f"date_trunc('{self.choose('day', 'hour', 'month')}', {of('timestamp')})"],
            "boolean": [lambda: f"({self.condition(scope, depth - 1)})"],
            "jsonb": [lambda: f"({of('jsonb')} -> 'a')", lambda: f"jsonb_build_array({of('number')}, {of('text')})"],
            "array": [lambda: f"({of('array')} || {self.random.randint(0, 9)})", lambda: f"array_remove({of('array')}, 1)"],
        }[kind]
        return self.random.choice(common + own + own)()

    def condition(self, scope, depth=2):
        kind = self.choose("number", "number", "text", "date", "timestamp", "boolean", "array", "jsonb")
        one, other = self.value(scope, kind, max(depth - 1, 0)), self.value(scope, kind, max(depth - 1, 0))
        options = [f"{one} {self.choose('=', '<>', '<', '<=', '>', '>=')} {other}", f"{one} is {self.choose('', 'not ')}null",
                   f"{one} is {self.choose('', 'not ')}distinct from {other}",
                   f"{one} {self.choose('', 'not ')}in ({other}, {self.literal(kind)})",
                   f"{one} between {other} and {self.literal(kind)}"]
        if kind == "text":
            options += [f"{one} {self.choose('like', 'not like')} '{self.choose('a%', '%b', '_b%', 'x!%')}'"]
        if kind == "boolean":
            options += [one, f"not {one}"]
        if kind == "array":
            options += [f"{one} {self.choose('@>', '<@', '&&')} {other}", f"{self.random.randint(0, 3)} = any ({one})"]
        if kind == "jsonb":
            options = [f"{one} {self.choose('@>', '<@', '=')} {other}", f"{one} is null"]
        made = self.random.choice(options)
        if depth > 0 and self.random.random() < 0.5:
            made = f"({made} {self.choose('and', 'or')} {self.condition(scope, depth - 1)})"
        return made

    def relation(self):
        """A table under a new alias, and its columns."""
        self.aliases += 1
        alias, table = f"r{self.aliases}", self.random.choice(list(TABLES))
        return f"{table} {alias}", [(f"{alias}.{column}", KINDS[ty]) for column, ty in TABLES[table].items()]

    def source(self):
        """FROM with its joins."""
        text, scope = self.relation()
        for _ in range(self.choose(0, 0, 1, 1, 2)):
            more, columns = self.relation()
            kind = self.choose("join", "left join", "right join", "full join")
            numbers = lambda scope: self.random.choice([name for name, kind in scope if kind == "number"])
            equal = f"{numbers(scope)} = {numbers(columns)}"
            extra = f" and {self.condition(columns, 0)}" if kind != "full join" and self.random.random() < 0.4 else ""
            text, scope = f"{text} {kind} {more} on {equal}{extra}", scope + columns
        return text, scope

    def subquery(self, scope):
        text, columns = self.source()
        link = self.condition(scope + columns, 1)
        number = self.value(columns, "number", 1)
        return self.choose(
            f"exists (select 1 from {text} where {link})", f"not exists (select 1 from {text} where {link})",
            f"{self.column(scope, 'number')} in (select {number} from {text} where {self.condition(columns, 1)})",
            f"{self.column(scope, 'number')} not in (select {number} from {text} where {self.condition(columns, 1)})",
            f"{self.column(scope, 'number')} > (select max({number}) from {text} where {link})",
            f"{self.column(scope, 'number')} = any (select {number} from {text})")

    def where(self, scope):
        parts = [self.condition(scope) for _ in range(self.choose(0, 1, 1, 2))]
        if self.random.random() < 0.25:
            parts.append(self.subquery(scope))
        return f" where {' and '.join(parts)}" if parts else ""

    def query(self):
        text, scope = self.source()
        kinds = [self.choose("number", "text", "date", "boolean", "number", "timestamp") for _ in range(self.random.randint(1, 3))]
        shape = self.random.random()
        if shape < 0.3:
            keys = [self.value(scope, kind, 1) for kind in kinds]
            number = self.value(scope, "number", 1)
            calls = ["count(*)", f"sum({number})", f"min({number})", f"count(distinct {number})", f"round(avg({number}), 3)",
                     f"bool_or({self.condition(scope, 0)})", f"max({self.value(scope, 'text', 1)})",
                     f"count(*) filter (where {self.condition(scope, 0)})",
                     f"array_agg({number} order by {number})", "string_agg({0}, ',' order by {0})".format(self.column(scope, "text"))]
            calls = self.random.sample(calls, 2)
            having = f" having count(*) > {self.random.randint(0, 3)}" if self.random.random() < 0.3 else ""
            places = ", ".join(str(place + 1) for place in range(len(keys)))
            return f"select {', '.join(keys + calls)} from {text}{self.where(scope)} group by {places}{having}"
        items = [self.value(scope, kind) for kind in kinds]
        if shape < 0.4:
            part, order = self.column(scope, "text"), ", ".join(name for name, kind in scope if name.endswith((".id", ".k")))
            items.append(f"{self.choose('row_number()', 'count(*)', 'rank()')} over (partition by {part} order by {order})")
        made = f"select {self.choose('', '', 'distinct ')}{', '.join(items)} from {text}{self.where(scope)}"
        if shape > 0.92:
            other, columns = self.source()
            items = [self.value(columns, kind, 1) for kind in kinds]
            made = f"{made} {self.choose('union', 'union all', 'except', 'intersect', 'except all')} select {', '.join(items)} from {other}"
        elif shape > 0.8:
            # With a limit the order has to decide everything.
            order = ", ".join(str(place + 1) + self.choose("", " desc", " nulls first") for place in range(len(items)))
            return f"select * from ({made}) s order by {order} limit {self.random.randint(0, 20)} offset {self.random.randint(0, 5)}"
        return made

    def change(self):
        table = self.random.choice(list(TABLES))
        scope = [(name, KINDS[ty]) for name, ty in TABLES[table].items()]
        names = list(TABLES[table])
        kind = self.random.random()
        if kind < 0.4:
            values = [self.literal(found) if name != "k" else f"'k{self.random.randint(0, 60)}'" for name, found in scope]
            if KEYS[table] == "id":
                values[0] = str(self.random.randint(0, 60))
            ending = self.choose("", "", f" on conflict ({KEYS[table]}) do nothing",
                                 f" on conflict ({KEYS[table]}) do update set n = excluded.n")
            return f"insert into {table} values ({', '.join(values)}){ending} returning *"
        where = self.where(scope)
        if kind < 0.8:
            changed = self.random.sample([pair for pair in scope if pair[0] != KEYS[table]], 2)
            sets = ", ".join(f"{name} = {self.value(scope, found, 1)}" for name, found in changed)
            return f"update {table} set {sets}{where} returning {', '.join(names)}"
        return f"delete from {table}{where or ' where n = 3'} and {KEYS[table]} is not null returning {KEYS[table]}"

    def wrong(self):
        return self.choose("select nothing from a", "select * from nowhere", "select n + t from a", "select sum(n), t from a", "select 1 / (n - n) from a where n = n",
                           "select max(count(*)) from a", "insert into a (id) values (1), (1)", "select a.id from a, b order by id, nope", "select t::integer from a where t = 'ab'",
                           "select id from a union select t from a", "update a set nope = 1", "select (select id from a)", "select '2024-13-01'::date", "insert into a values (null)",
                           "select array[1] || 'x'", "select coalesce(1, 'x'::text)", "select count(*) from a group by n having t = 'a'")

    def statement(self):
        kind = self.random.random()
        return self.query() if kind < 0.72 else self.change() if kind < 0.96 else self.wrong()


def canonical(value):
    return repr(sorted(value.items()) if isinstance(value, dict) else value)


def run(connection, statement, ordered):
    """Rows (sorted, unless their order counts) and count, or SQLSTATE."""
    with connection.cursor() as cursor:
        try:
            cursor.execute(statement)
            rows = [tuple(map(canonical, row)) for row in cursor.fetchall()] if cursor.description else []
            return (rows if ordered else sorted(rows)), cursor.rowcount
        except psycopg2.Error as error:
            if error.pgcode is None:
                raise
            return error.pgcode


def main(ports, seed, statements):
    generator = Generator(seed)
    connections = [psycopg2.connect(host="127.0.0.1", port=port, user="postgres", dbname="postgres") for port in ports]
    for connection in connections:
        connection.autocommit = True
    setup = [f"create table {table} ({', '.join(f'{name} {ty}' + (' primary key' if name == KEYS[table] else '') for name, ty in columns.items())})"
             for table, columns in TABLES.items()] + INDEXES
    failed = 0
    for number in range(-len(setup) - 150, statements):
        # First the tables, then rows, then everything.
        at = number + len(setup) + 150
        statement = setup[at] if at < len(setup) else generator.change() if number < 0 else generator.statement()
        if number in (0, statements // 2):
            for connection in connections:
                run(connection, "analyze", False)
        answers = [run(connection, statement, " limit " in statement) for connection in connections]
        if answers[0] != answers[1]:
            print(f"seed {seed}, statement {number}:\n{statement}\nhomenode:   {answers[0]}\npostgresql: {answers[1]}", file=sys.stderr)
            return 1
        failed += isinstance(answers[0], str)
    print(f"{statements} statements, {failed} failed on both")
    return 0


if __name__ == "__main__":
    sys.exit(main([int(port) for port in sys.argv[1:3]], int(sys.argv[3]), int(sys.argv[4])))
