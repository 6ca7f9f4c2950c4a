create role g_readers
create user g_ann password 'secret' connection limit 5
create user g_bob in role g_readers
create role g_ann
create role g_zed superuser superuser
create role "public"
select rolname, rolsuper, rolinherit, rolcreaterole, rolcreatedb, rolcanlogin, rolconnlimit from pg_roles where rolname like 'g%' order by 1
select substr(rolpassword, 1, 19) from pg_authid where rolname = 'g_ann'
alter role g_ann createrole nologin valid until '2030-01-01 00:00:00+00'
select rolname, rolcreaterole, rolcanlogin, rolvaliduntil from pg_roles where rolname = 'g_ann'
alter role g_ann nocreaterole login
alter role g_nobody login
alter role g_bob rename to g_robert
alter role g_robert rename to g_ann
alter role g_robert rename to g_bob
create table g_t (id integer primary key, v integer)
create table g_own (id serial primary key, v text)
insert into g_t values (1, 10), (2, 20)
set role g_bob
select current_user
select * from g_t
insert into g_t values (3, 30)
update g_t set v = 1
delete from g_t
truncate g_t
select count(*) from g_own
drop table g_t
alter table g_t add column w integer
create index on g_t (v)
create table g_mine (id integer)
reset role
grant select on g_t to g_readers
grant select on g_missing to g_readers
grant usage on g_t to g_readers
grant select on g_t to g_nobody
set role g_bob
select * from g_t order by id
select has_table_privilege('g_t', 'select'), has_table_privilege('g_t', 'insert'), has_table_privilege('g_t', 'insert, select')
insert into g_t values (3, 30)
grant select on g_t to public
reset role
grant insert, update, delete on g_t to g_ann
set role g_ann
insert into g_t values (3, 30)
insert into g_t values (4, 40) returning id
insert into g_t values (4, 40) on conflict do nothing
update g_t set v = 5
update g_t set v = v + 1
delete from g_t where id = 3
select 1 from g_t
insert into g_own (v) values ('a')
reset role
grant all on g_own to g_ann
set role g_ann
insert into g_own (v) values ('a')
reset role
grant usage on sequence g_own_id_seq to g_ann
set role g_ann
insert into g_own (v) values ('a') returning v
select setval('g_own_id_seq', 7)
reset role
select relacl from pg_class where relname = 'g_t'
revoke update, delete on g_t from g_ann
select relacl from pg_class where relname = 'g_t'
revoke all on g_t from g_ann
revoke all on g_t from g_readers
grant select on g_t to g_ann with grant option
set role g_ann
grant select on g_t to g_bob
grant insert on g_t to g_bob
reset role
set role g_bob
select count(*) from g_t
select * from g_t for update
reset role
grant create on schema public to g_ann
set role g_ann
create table g_anns (id serial primary key, v integer)
insert into g_anns (v) values (1), (2)
create index g_anns_v on g_anns (v)
alter table g_anns add column w integer default 3
select id, v, w from g_anns order by id
grant select on g_anns to public
alter table g_anns owner to g_bob
set role g_bob
set role postgres
reset role
select tablename, tableowner from pg_tables where tablename like 'g%' order by 1
set role g_bob
select sum(v) from g_anns
drop table g_anns
drop role g_ann
create role g_more
reset role
drop role g_ann
drop role g_readers, g_nobody
drop role if exists g_nobody
drop role g_readers
grant g_ann to g_bob
grant g_bob to g_ann
select pg_has_role('g_bob', 'g_ann', 'member'), pg_has_role('g_ann', 'g_bob', 'member')
set role g_bob
drop table g_anns
reset role
revoke g_ann from g_bob
revoke all on g_t from g_ann
revoke select on g_t from g_bob
begin
set role g_ann
select current_user
rollback
select current_user
drop table g_t, g_own
revoke create on schema public from g_ann
drop role g_ann
drop role g_bob
select count(*) from pg_roles where rolname like 'g%'
create role v_owner
create role v_user
create table v_t (a integer)
insert into v_t values (1), (2)
grant create on schema public to v_owner
grant select on v_t to v_owner
set role v_owner
create view v_v as select a from v_t
grant select on v_v to v_user
set role v_user
reset role
set role v_user
select sum(a) from v_v
select sum(a) from v_t
create or replace view v_v as select a from v_t
drop view v_v
reset role
select sum(a) from v_v
revoke select on v_t from v_owner
select sum(a) from v_v
set role v_user
select sum(a) from v_v
reset role
revoke create on schema public from v_owner
drop role v_owner
drop view v_v
drop table v_t
drop role v_owner, v_user
