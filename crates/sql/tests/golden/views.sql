create table t (id int primary key, a int, b text, n numeric(8, 2))
insert into t values (1, 10, 'x', 1.5), (2, 20, 'y', 2.5), (3, 10, 'z', 3.25)
create view v as select * from t
select * from v order by id
create view v2 (k, total) as select a, sum(n) from t group by a
select * from v2 order by k
select v.b, v2.total from v join v2 on v.a = v2.k where v.id < 3 order by 1
create view v as select 1
create view t as select 1
create or replace view t as select 1
create view v3 as select a, a from t
create view v3 (x, y) as select a from t
create view v3 as select $1::int
create view v3 as select missing from t
create view v3 as select * from nowhere
alter table t add column added int default 7
select * from v order by id
select * from t order by id
create or replace view v as select id, a, b, n, added from t
select * from v order by id
create or replace view v as select id, a from t
create or replace view v as select id, a as aa, b, n, added from t
create or replace view v as select id, a, b, n::int, added from t
create or replace view v as select id, a, b, n, added, id * 2 as twice from t where a = 10
select * from v order by id
create view w as select twice, v2.* from v join v2 on v.a = v2.k
select * from w order by twice
drop table t
drop view v
drop view v2, v
drop view t
drop table v
drop index v
drop view missing
drop view if exists missing
truncate v
lock table missing
select relname, relkind, relnatts, relhasrules from pg_class where relname in ('v', 'v2', 'w') order by 1
select attname, format_type(atttypid, atttypmod), attnum from pg_attribute where attrelid = 'v2'::regclass and attnum > 0 order by attnum
select schemaname, viewname from pg_views where schemaname = 'public' order by 2
select table_name, table_type from information_schema.tables where table_schema = 'public' order by 1
select column_name, data_type, is_nullable from information_schema.columns where table_name = 'v2' order by ordinal_position
select table_name from information_schema.views where table_schema = 'public' order by 1
select 'v'::regclass, 'v2'::regclass::text
with v as (select 5 as id) select * from v
with t as (select 99 as id, 10 as a) select count(*) from v
select (select max(id) from v), exists (select from v where id = 3), 3 in (select id from v)
select x.id, y.total from v x, lateral (select total from v2 where v2.k = x.a) y order by 1
select count(*) from v where id = any (array[1, 2])
begin
create view temp_v as select 1 as one
select * from temp_v
rollback
select * from temp_v
begin
drop view w
savepoint s
drop view v
rollback to s
select count(*) from v
rollback
select count(*) from w
drop table t cascade
select * from v
select count(*) from pg_views where schemaname = 'public'
create view consts as select 1 as i, 'text' as s, null as n, now() is not null as b union all select 2, 'more', 'x', false
select * from consts
select attname, format_type(atttypid, atttypmod) from pg_attribute where attrelid = 'consts'::regclass and attnum > 0 order by attnum
create view over_catalog as select relname from pg_class where relkind = 'v' and relnamespace = 'public'::regnamespace
select * from over_catalog order by 1
create view windows as select i, row_number() over (order by i desc) from consts
select * from windows order by 1
create view ordered as select i from consts order by i desc limit 1
select * from ordered
drop view consts cascade
create table p1 (id int primary key)
create table c1 (id int references p1)
create view pv as select p1.id from p1 join c1 using (id)
drop table p1
drop table p1 cascade
drop table c1
create table q1 (id int)
create view qv as select * from q1
create table q2 (id int)
drop table q1, q2
drop table q1, q2 cascade
