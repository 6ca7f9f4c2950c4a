create table t (id int primary key, name text, a int, b int, active boolean)
insert into t select n, 'Name' || n, n % 10, n, n % 3 = 0 from generate_series(1, 50) n
create index on t (lower(name))
create unique index t_ab on t ((a + b)) where active
create index t_desc on t (a desc, b desc nulls last, name nulls first)
create index t_inc on t (b) include (name, a)
create index t_part on t (b) where a > 5 and active
create index on t (lower(name), (b * 2), a)
create index on t ((b - a), (b + a))
select indexrelid::regclass, indnatts, indnkeyatts, indkey, indoption, indisunique from pg_index where indrelid = 't'::regclass order by indexrelid
select indexname, indexdef from pg_indexes where tablename = 't' and indexname <> 't_part' order by 1
select * from t order by id limit 2
select attname from pg_attribute where attrelid = 't'::regclass and attnum > 0 order by attnum
select id from t where lower(name) = 'name7'
select id from t where lower(name) in ('name7', 'name8', 'nope') order by id
select id from t where lower(name) between 'name10' and 'name12' order by id
select id, b from t where b < 30 and a > 5 and active order by b
select id from t where active and a + b = 6
insert into t values (100, 'X', 3, 3, true)
insert into t values (100, 'X', 3, 3, false)
insert into t values (101, 'X', 3, 3, null)
update t set active = true where id = 100
update t set active = true, a = 1000 where id = 100
select id from t where a + b = 1003 and active
update t set active = false where id = 100
select id from t where a + b = 1003 and active
select id from t where a + b = 1003
update t set name = 'Renamed' where id = 7
select id from t where lower(name) = 'renamed'
select id from t where lower(name) = 'name7'
delete from t where id = 7
select id from t where lower(name) = 'renamed'
insert into t (id, name) values (200, null) returning *
insert into t values (201, 'ON', 3, 3, true) on conflict do nothing
insert into t values (3, 'Conflict', 1, 1, true) on conflict (id) do update set name = excluded.name returning *
select id from t where lower(name) = 'conflict'
create index bad on t (nope)
create index bad on t (lower(nope))
create index bad on t ((now()))
create index bad on t ((random() + a))
create index bad on t (a) where b
create index bad on t (a) where (select true)
create index bad on t (sum(a))
create unique index bad on t ((a * 0))
create unique index only_some on t ((a * 0)) where id = 3
alter table t rename column name to label
select id from t where lower(label) = 'name8'
select indexdef from pg_indexes where indexname = 't_lower_idx'
alter table t drop column b
select indexname from pg_indexes where tablename = 't' order by 1
select id from t where lower(label) = 'name9'
drop index t_lower_idx
select id from t where lower(label) = 'name9'
truncate t
insert into t values (1, 'Again', 6, true)
select id from t where lower(label) = 'again'
create table child (id int, ref int)
create unique index on t (a) where active
alter table child add foreign key (ref) references t (a)
alter table t add column g int generated always as (a * 3) stored
create index t_g on t (g)
select id, g from t where g = 18
drop table child, t
