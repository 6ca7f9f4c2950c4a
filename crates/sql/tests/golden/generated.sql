create table g (a int primary key, b int generated always as (a * 2) stored, c text)
insert into g values (1, default, 'x')
insert into g (a, c) values (2, 'y') returning *
insert into g values (3, 6, 'z')
insert into g (a, b) values (3, 6)
insert into g select 3, 4, 'z'
insert into g (a, c) select n, 's' from generate_series(3, 5) n
select * from g order by a
update g set a = 10 where a = 1
update g set a = a + 100, c = 'u' where b > 8 returning *
update g set b = 5
update g set b = default where a = 2 returning *
insert into g (a) values (2) on conflict (a) do update set a = 20, c = 'conflict' returning *
select * from g order by a
create unique index on g (b)
insert into g (a) values (20)
select a from g where b = 40
alter table g add column d text generated always as (upper(c) || '!') stored
select * from g order by a
update g set c = 'new' where a = 20
select * from g where a = 20
create table g2 (a int, b int generated always as (a + 1) stored not null, check (b < 100))
insert into g2 values (null)
insert into g2 values (99)
insert into g2 values (5)
select * from g2
create table bad (a int, b int generated always as (b + 1) stored)
create table bad (a int, b int generated always as (a + 1) stored, c int generated always as (b + 1) stored)
create table bad (a int, b int generated always as (nope + 1) stored)
create table bad (a int, b timestamptz generated always as (now()) stored)
create table bad (a int, b int generated always as ((select 1)) stored)
create table bad (a int, b int default 5 generated always as (a) stored)
select attname, attgenerated, pg_get_expr(adbin, adrelid) from pg_attribute join pg_attrdef on adrelid = attrelid and adnum = attnum where attrelid = 'g'::regclass and attnum = 2 order by attnum
alter table g alter column b set default 3
alter table g alter column b drop expression
alter table g alter column b drop expression
alter table g alter column b drop expression if exists
update g set b = 77 where a = 20 returning *
alter table g drop column c
alter table g drop column c cascade
select * from g order by a
alter table g2 alter column a type bigint
alter table g2 drop column b
insert into g2 values (1000)
alter table g2 drop column a
create table f (id int primary key)
create table h (a int, b int generated always as (a % 10) stored references f)
insert into f values (1), (2)
insert into h values (11), (42)
insert into h values (7)
update h set a = 13 where a = 11
update h set a = 12 where a = 11 returning *
drop table h, f, g, g2
