// What a program in JavaScript sees: node-postgres with its cursor and its pool, against the server on the port given.
"use strict";
const assert = require("node:assert/strict");
const { Client, Pool, types } = require("pg");
const Cursor = require("pg-cursor");

const where = { host: "127.0.0.1", port: Number(process.argv[2]), user: "postgres", database: "postgres" };

async function values(client) {
  await client.query(`create table everything (id serial primary key, small smallint, number integer, big bigint,
    exact numeric(20, 5), double double precision, words text, letters char(4), bytes bytea, day date, moment timestamp,
    instant timestamptz, truth boolean, mark uuid, numbers integer[], texts text[])`);
  const instant = new Date(Date.UTC(2020, 4, 6, 7, 8, 9, 123));
  const bytes = Buffer.from(Array.from({ length: 256 }, (_, i) => i));
  const row = [-32768, 2 ** 31 - 1, "-9223372036854775808", "-123456789012345.67891", 1e300, "Grüße, 世界 😀 '\\", "ab",
    bytes, "2024-02-29", "1999-12-31 23:59:59.000001", instant, true, "01234567-89ab-cdef-0123-456789abcdef", [1, null, 3],
    ["a,b", 'c"d', null, ""]];
  const marks = row.map((_, i) => `$${i + 1}`).join(", ");
  // Dates as the server writes them: the client would read them in its own time zone.
  for (const oid of [types.builtins.DATE, types.builtins.TIMESTAMP]) types.setTypeParser(oid, (text) => text);
  await client.query(`insert into everything values (default, ${marks})`, row);
  await client.query(`insert into everything values (default, ${marks})`, row.map(() => null));
  const expected = { ...row, 6: "ab  " };
  // A statement with a name is prepared once and used again.
  for (let i = 0; i < 3; i++) {
    const found = await client.query({ name: "all", text: "select * from everything order by id", rowMode: "array" });
    assert.deepEqual(found.rows[0].slice(1), Object.values(expected));
    assert.deepEqual(found.rows[1].slice(1), row.map(() => null));
    assert.deepEqual(found.fields.slice(0, 3).map((field) => field.dataTypeID), [23, 21, 23]);
  }
  console.log("values");
}

async function errors(client) {
  for (const [text, code, parameters] of [
    ["insert into everything (id) values ($1)", "23505", [1]],
    ["select * from nowhere", "42P01"],
    ["select 1 / $1::integer", "22012", [0]],
    ["select $1::integer", "22P02", ["x"]],
    ["selec", "42601"],
  ]) {
    await assert.rejects(client.query(text, parameters), { code });
  }
  await client.query("begin");
  await client.query("insert into everything (id) values (10)");
  await client.query("savepoint one");
  await assert.rejects(client.query("insert into everything (id) values (10)"), { code: "23505", constraint: "everything_pkey" });
  await assert.rejects(client.query("select 1"), { code: "25P02" });
  await client.query("rollback to one");
  await client.query("commit");
  assert.equal((await client.query("select from everything where id = 10")).rowCount, 1);
  // Several statements in one message: an answer for each.
  const several = await client.query("select 1 as a; select 2 as b; update everything set small = 0 where id = 10");
  assert.deepEqual(several.map((one) => one.command), ["SELECT", "SELECT", "UPDATE"]);
  console.log("errors");
}

async function cursor(client) {
  const reader = client.query(new Cursor("select i from generate_series(1, $1) i", [1000]));
  let sum = 0;
  for (let rows; (rows = await reader.read(64)).length > 0; ) sum += rows.reduce((total, row) => total + row.i, 0);
  await reader.close();
  assert.equal(sum, 500500);
  console.log("cursor");
}

async function pool() {
  const pool = new Pool({ ...where, max: 8 });
  await pool.query("create table counter (id integer primary key, n integer not null)");
  await pool.query("insert into counter values (1, 0)");
  await Promise.all(Array.from({ length: 200 }, () => pool.query("update counter set n = n + 1 where id = 1")));
  assert.equal((await pool.query("select n from counter")).rows[0].n, 200);
  const connection = await pool.connect();
  const pid = (await connection.query("select pg_backend_pid() as pid")).rows[0].pid;
  const sleeping = connection.query("select pg_sleep(60)");
  const cancelled = assert.rejects(sleeping, { code: "57014" });
  await new Promise((resolve) => setTimeout(resolve, 300));
  await pool.query("select pg_cancel_backend($1)", [pid]);
  await cancelled;
  connection.release();
  await pool.end();
  console.log("pool");
}

async function main() {
  const client = new Client(where);
  await client.connect();
  await values(client);
  await errors(client);
  await cursor(client);
  await client.end();
  await pool();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
