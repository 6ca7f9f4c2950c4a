create table t (id int, a int not null, b text)
create table t (id int)
create table if not exists t (id int)
create table x (a int, a int)
create table x (a nosuchtype)
create table x (a int primary key, b int primary key)
create table x (a int, primary key (nope))
insert into t values (1, 1, 'x'), (2, 2, 'y')
alter table t add primary key (id)
alter table t add primary key (id)
insert into t values (1, 1, 'x')
alter table t add column c int
select * from t order by id
alter table t add constraint t_b_key unique (b)
insert into t values (3, 3, 'x')
alter table t alter column a drop not null
insert into t (id) values (4)
alter table t alter column a set not null
alter table t rename column c to cc
select cc from t where id = 4
alter table t rename to tt
select count(*) from t
select count(*) from tt
create index tt_a on tt (a)
create index tt_a on tt (a)
create index if not exists tt_a on tt (a)
create index on tt (nope)
drop index tt_a
drop index tt_a
drop index if exists tt_a
drop index tt_pkey
create sequence s start 5 increment 2
select nextval('s'), nextval('s')
alter sequence s restart
select nextval('s')
drop sequence s
select nextval('s')
create table f (a int) with (fillfactor=100)
truncate tt, f
select count(*) from tt
drop table if exists nope, tt
drop table tt
drop table f
create table as_query as select g as n, 'x' || g as s from generate_series(1, 3) g
select * from as_query order by n
vacuum analyze nope
select relname, relkind from pg_class where relname in ('as_query', 't') order by 1
select attname, format_type(atttypid, atttypmod) from pg_attribute where attrelid = 'as_query'::regclass and attnum > 0 order by attnum
select 'as_query'::regclass
select 'nope'::regclass
select typname from pg_type where oid = 23
select table_name from information_schema.tables where table_schema = 'public'
create table filled (n int primary key, t text);
insert into filled values (1, 'a'), (2, 'b'), (3, null);
alter table filled add column plain int;
alter table filled add column v int not null default 7;
alter table filled add column w text default upper('x') || 'y';
alter table filled add column broken int not null;
alter table filled add column serial_column serial;
alter table filled add column numbered int generated always as identity;
select * from filled order by n;
insert into filled (n) values (4);
select * from filled order by n;
alter table filled add column one_value int default 1 unique;
alter table filled add column many_values int default null unique;
begin;
alter table filled add column taken_back int default 5;
select n, taken_back from filled order by n;
rollback;
select * from filled where n = 1;
create index on filled (v);
update filled set v = n where n > 1;
select n from filled where v = 2;
drop table filled;
