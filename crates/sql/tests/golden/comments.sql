create schema s
create table s.t (id serial primary key, a int constraint positive check (a > 0), b text unique, p int constraint parent references s.t)
create index t_a on s.t (a)
create view s.v as select id, a from s.t
create sequence s.q
create role commented
comment on table s.t is 'the table'
comment on column s.t.a is 'a column, it''s said'
comment on column s.v.id is 'of a view'
comment on index s.t_a is 'an index'
comment on index s.t_pkey is 'the key''s index'
comment on constraint t_pkey on s.t is 'the key'
comment on constraint positive on s.t is 'a check'
comment on constraint parent on s.t is 'a foreign key'
comment on constraint t_b_key on s.t is 'a unique'
comment on sequence s.q is 'a sequence'
comment on view s.v is 'a view'
comment on schema s is 'a schema'
comment on role commented is 'a role'
comment on database postgres is 'this one'
comment on table s.nope is 'x'
comment on column s.t.nope is 'x'
comment on column nope is 'x'
comment on index s.t is 'x'
comment on table s.v is 'x'
comment on view s.t is 'x'
comment on sequence s.t is 'x'
comment on constraint nope on s.t is 'x'
comment on constraint nope on s.nope is 'x'
comment on schema nope is 'x'
comment on role nope is 'x'
comment on database nope is 'x'
select obj_description('s.t'::regclass), obj_description('s.t'::regclass, 'pg_class'), col_description('s.t'::regclass, 2), col_description('s.v'::regclass, 1), col_description('s.t'::regclass, 1)
select obj_description('s.t_a'::regclass, 'pg_class'), obj_description('s.t_pkey'::regclass, 'pg_class'), obj_description('s.q'::regclass, 'pg_class'), obj_description('s.v'::regclass, 'pg_class')
select conname, obj_description(oid, 'pg_constraint') from pg_constraint where conrelid = 's.t'::regclass order by 1
select obj_description('s'::regnamespace, 'pg_namespace')
select shobj_description('commented'::regrole, 'pg_authid')
select shobj_description(oid, 'pg_database') from pg_database where datname = current_database()
select obj_description('s.t'::regclass, 'pg_proc')
select c.relname, d.objsubid, d.description from pg_description d join pg_class c on c.oid = d.objoid and d.classoid = 'pg_class'::regclass where relnamespace = 's'::regnamespace order by 1, 2
comment on table s.t is null
comment on column s.t.a is ''
select obj_description('s.t'::regclass), col_description('s.t'::regclass, 2)
begin
comment on table s.t is 'gone again'
select obj_description('s.t'::regclass)
rollback
select obj_description('s.t'::regclass)
comment on table s.t is 'once more'
drop index s.t_a
alter table s.t drop constraint positive
drop view s.v
select c.relname, d.objsubid, d.description from pg_description d join pg_class c on c.oid = d.objoid and d.classoid = 'pg_class'::regclass where relnamespace = 's'::regnamespace order by 1, 2
set role commented
comment on table s.t is 'not mine'
comment on schema s is 'not mine'
reset role
drop schema s cascade
drop role commented
select count(*) from pg_description d where objoid >= 16384
select count(*) from pg_shdescription d where description = 'a role'
