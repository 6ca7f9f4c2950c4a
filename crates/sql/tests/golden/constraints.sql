create table c (id int primary key, v int check (v > 0), w int constraint small check (w < 100), t text, check (v < w), constraint both_ends check (v < 50))
insert into c values (1, 10, 20, 'a')
insert into c values (2, 0, 20, 'a')
insert into c values (2, 10, 100, 'a')
insert into c values (2, 30, 20, 'a')
insert into c values (2, 30, 40, 'x')
insert into c values (3, null, null, null), (4, 51, 60, 'a')
insert into c values (3, null, null, null)
insert into c (id, v) select 10 + g, g - 1 from generate_series(1, 3) g
insert into c (id, v) select 10 + g, g from generate_series(1, 3) g
update c set v = -1 where id = 1
update c set v = v - 2 where id > 10
update c set v = 15 where id = 1 returning v
update c set v = (select max(w) from c) where id = 1
update c set w = 5, t = 'x' where id = 1
select * from c order by id
insert into c values (1, 1, 2, 'n') on conflict (id) do update set v = excluded.v - 5
insert into c values (1, 0, 2, 'n') on conflict (id) do nothing
insert into c values (1, 1, 2, 'n') on conflict (id) do update set v = 7 returning v
select conname, contype, pg_get_constraintdef(oid), conkey from pg_constraint where conrelid = 'c'::regclass order by conname
select relchecks from pg_class where relname = 'c'
alter table c add constraint t_short check (length(t) < 2)
alter table c add check (id < 12)
alter table c add check (id < 100)
alter table c add check (id < 1000)
insert into c values (200, 1, 2, 'a')
insert into c values (20, 1, 2, 'aa')
alter table c drop constraint t_short
insert into c values (20, 1, 2, 'aa')
alter table c drop constraint t_short
alter table c drop constraint if exists t_short
alter table c rename column v to "Value"
insert into c values (21, 0, 2, 'a')
select conname, pg_get_constraintdef(oid) from pg_constraint where conrelid = 'c'::regclass and conname like 'c_v%' order by conname
alter table c add column z int default 5 check (z > 2)
alter table c add column y int default 1 check (y > 2)
insert into c (id, z) values (30, 1)
insert into c (id, z) values (30, 3)
select id, z from c order by id
create table bad (id int check (id))
create table bad (id int check (nope > 1))
create table bad (id int check (id > (select 1)))
create table bad (id int check (sum(id) > 1))
create table bad (id int check (row_number() over () > 1))
create table bad (id int check (other.id > 1))
create table e (a int, b int, check (a > 0), check (a < 10), check (b > a), check (b < 100))
select conname from pg_constraint where conrelid = 'e'::regclass order by conname
insert into e values (1, 2)
insert into e values (5, 3)
begin
alter table e add constraint late check (a < 3)
insert into e values (4, 5)
rollback
insert into e values (4, 5)
select * from e order by a
