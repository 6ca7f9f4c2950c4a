show search_path
select current_schema(), current_schemas(true), current_schemas(false)
create schema s1
create schema s1
create schema if not exists s1
create schema pg_x
create table s1.t (id serial primary key, a int references s1.t, b text unique)
create table t (id int)
create table nosuch.t (a int)
select * from nosuch.t
insert into s1.t (b) values ('x')
insert into t values (7)
select * from t
select * from s1.t
set search_path to s1, public
show search_path
select * from t
select current_schema(), current_schemas(false)
select 't'::regclass, 'public.t'::regclass, 's1.t_id_seq'::regclass, 'public.t'::regclass::oid = 't'::regclass::oid
create table u (id int primary key, t int references t)
select schemaname, tablename from pg_tables where schemaname in ('public', 's1') order by 1, 2
set search_path to public
select * from u
select 's1.u'::regclass
select pg_get_constraintdef(oid) from pg_constraint where conname = 'u_t_fkey'
select pg_get_expr(adbin, adrelid) from pg_attrdef where adrelid = 's1.t'::regclass
insert into s1.t (b) values ('y') returning id
create view v as select * from s1.t
create view s1.w as select id as n from t
select * from s1.w
set search_path to s1
select * from w
select * from v
select * from public.v
create table t (a int)
create index on u (t)
drop index u_t_idx
set search_path to nosuch
create table x (a int)
select current_schema()
set search_path to ''
show search_path
select current_schemas(true), current_schemas(false)
select * from t
select count(*) from pg_class where relname = 'pg_class'
set search_path to "Mixed Case", public, "$user"
show search_path
reset search_path
show search_path
begin
set local search_path to s1
select count(*) from t
rollback
select count(*) from t
begin
savepoint a
set search_path to s1
select current_schema()
rollback to a
select current_schema()
commit
select set_config('search_path', 's1', false)
select current_schema()
select set_config('search_path', '', false)
select current_schema()
select set_config('search_path', 'a,', false)
set search_path to pg_catalog, public
select current_schema(), current_schemas(true)
create table in_catalog (a int)
reset search_path
drop schema s1
drop schema nosuch
drop schema if exists nosuch
alter table t set schema s1
create schema s2
alter table t set schema s2
alter table s2.t set schema s2
alter table nosuch set schema s2
alter table if exists nosuch set schema s2
select * from s2.t
create sequence q
alter sequence q set schema s2
select nextval('s2.q')
alter sequence s1.t_id_seq set schema s2
create table d (a int default nextval('s2.q'))
insert into d default values returning a
set search_path to s2
insert into public.d default values returning a
select pg_get_expr(adbin, adrelid) from pg_attrdef where adrelid = 'public.d'::regclass
reset search_path
drop table d
create schema s3
create table s3.a (id int primary key, x text default 'k')
create table s3.b (id int references s3.a)
alter schema s3 rename to s4
alter schema s4 rename to s1
alter schema nosuch rename to x
select * from s3.a
insert into s4.a values (1) returning x
insert into s4.b values (1), (1)
insert into s4.b values (2)
create table outside (id int references s4.a)
drop schema s4
drop schema s4 cascade
insert into outside values (77)
drop table outside
select nspname from pg_namespace where nspname !~ '^pg_' and nspname not in ('information_schema', 'homenode') order by 1
select schema_name from information_schema.schemata where schema_name ~ '^s' order by 1
select table_schema, table_name, table_type from information_schema.tables where table_schema in ('s1', 's2') order by 1, 2
create role plain
create role owner
create schema o authorization owner
create schema authorization owner
set role owner
create table o.mine (a int)
create table o2.mine (a int)
insert into o.mine values (1)
grant select on o.mine to plain
create schema nope
alter schema o rename to oo
alter schema oo rename to o
drop schema s1
set role plain
select * from o.mine
create table o.x (a int)
create table x (a int)
alter schema o rename to p
drop schema o
select * from o.nosuch
set search_path to o, public
select current_schema()
select * from mine
set role owner
grant usage on schema o to plain
set role plain
select current_schema()
select * from mine
create table yours (a int)
set role owner
grant create on schema o to plain
set role plain
create table yours (a int)
drop table yours
select has_schema_privilege('o', 'usage'), has_schema_privilege('o', 'create'), has_schema_privilege('public', 'usage'), has_schema_privilege('public', 'create')
select has_schema_privilege('nosuch', 'usage')
reset role
reset search_path
select nspname, nspacl from pg_namespace where nspname = 'o'
revoke all on schema o from plain
grant usage on schema nosuch to plain
grant insert on schema o to plain
revoke usage on schema public from public
set role plain
select * from public.t
reset role
grant usage on schema public to public
alter schema o owner to postgres
drop schema o, owner cascade
drop role plain, owner
drop schema s2 cascade
select 1 as a where to_regclass('s1.t') is not null
drop schema s1, public cascade
select current_schema()
create table x (a int)
create schema public
create table x (a int)
drop table x
