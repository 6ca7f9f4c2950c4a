create table p (id int primary key, a int, b text, unique (a), unique (a, b))
create table c (id int primary key, p int references p, note text)
insert into p values (1, 10, 'x'), (2, 20, 'y'), (3, 30, 'z')
insert into c values (1, 1, 'ok'), (2, null, 'null'), (3, 3, 'ok')
insert into c values (4, 4, 'bad')
insert into c values (4, 1, 'ok'), (5, 9, 'bad')
insert into c select g, g from generate_series(2, 5) g where g > 3
select * from c order by id
update c set p = 7 where id = 1
update c set p = 2 where id = 1
update c set note = 'changed' where id = 1
update c set id = 10 where id = 1
delete from p where id = 2
delete from p where id = 1
update p set id = 5 where id = 3
update p set id = 3 where id = 3
update p set b = 'w' where id = 3
select * from p order by id
select conname, contype, conrelid::regclass, confrelid::regclass, conkey, confkey, confupdtype, confdeltype, confmatchtype, pg_get_constraintdef(oid) from pg_constraint where contype = 'f' order by conname
select relname, relhastriggers from pg_class where relname in ('p', 'c') order by 1
drop table p
truncate p
truncate p, c
insert into p values (1, 10, 'x'), (2, 20, 'y'), (3, 30, 'z')
insert into c values (1, 1)
truncate p cascade
select count(*) from c
insert into p values (1, 10, 'x'), (2, 20, 'y'), (3, 30, 'z')
insert into c values (1, 1)
alter table c drop constraint c_p_fkey
insert into c values (2, 8)
alter table c add constraint c_to_p foreign key (p) references p
delete from c where id = 2
alter table c add constraint c_to_p foreign key (p) references p on delete cascade on update cascade
alter table c add constraint c_to_p foreign key (p) references p
update p set id = 100 where id = 1
select * from c
delete from p where id = 100
select * from c
drop table c
create table c (id int primary key, p int references p on delete set null on update set null)
insert into c values (1, 2), (2, 3), (3, 3)
delete from p where id = 2
select * from c order by id
update p set id = 30 where id = 3
select * from c order by id
drop table c
create table c (id int primary key, p int default 1 references p (id) on delete set default on update set default)
insert into p values (1, 1, '1'), (2, 2, '2')
insert into c values (1, 2), (2, 30)
delete from p where id = 2
select * from c order by id
update p set id = 31 where id = 30
select * from c order by id
delete from p where id = 1
select * from c order by id
drop table c
create table c (id int primary key, p int references p on delete restrict on update restrict)
insert into c values (1, 1)
delete from p where id = 1
update p set id = 77 where id = 1
drop table c
create table c (a int, b text, foreign key (a, b) references p (a, b) on update cascade)
insert into c values (1, '1'), (1, null), (null, 'q'), (5, null)
insert into c values (1, '2')
update p set b = 'one' where id = 1
select * from c order by a, b
update p set a = 11, b = 'eleven' where id = 1
select * from c order by a, b
delete from p where id = 1
drop table c
create table c (b text, a int, constraint two foreign key (b, a) references p (b, a) on delete cascade)
insert into c values ('eleven', 11)
insert into c values ('11', 11)
delete from p where id = 1
select * from c
alter table p drop constraint p_a_b_key
drop index p_a_b_key
alter table p drop constraint p_a_b_key cascade
insert into c values ('free', 11)
drop table c
create table e (id int primary key, boss int references e on delete cascade)
insert into e values (1, null), (2, 1), (3, 2), (4, 2), (5, 4)
insert into e values (7, 6), (6, 1)
insert into e values (8, 9)
update e set boss = 8 where id = 5
delete from e where id = 2
select * from e order by id
delete from e
insert into e values (1, 1)
update e set id = 2, boss = 2
select * from e
delete from e
drop table e
create table e (id int primary key, boss int references e)
insert into e values (1, null), (2, 1), (3, 2)
delete from e where id = 2
delete from e where id in (2, 3)
delete from e
insert into e values (1, 1), (2, 1)
update e set id = id + 10
update e set id = id + 1, boss = boss + 1
select * from e order by id
drop table e
create table e (id int primary key, boss int references e on update cascade)
insert into e values (1, null), (2, 1), (3, 1)
update e set id = id + 10
select * from e order by id
create table a1 (id int primary key)
create table b1 (id int primary key, a int references a1 on delete cascade)
create table c1 (id int primary key, b int references b1 on delete cascade)
create table d1 (id int primary key, c int references c1)
insert into a1 values (1), (2)
insert into b1 values (1, 1), (2, 1), (3, 2)
insert into c1 values (1, 1), (2, 2), (3, 3)
insert into d1 values (1, 3)
delete from a1 where id = 1
select * from c1
delete from a1 where id = 2
select * from a1
drop table d1
delete from a1 where id = 2
select count(*) from c1
insert into a1 values (1)
insert into b1 values (1, 1)
insert into b1 values (2, 1) on conflict (id) do nothing
insert into b1 values (2, 1) on conflict (id) do update set a = 5
insert into b1 values (2, 1) on conflict (id) do update set a = 1
insert into b1 values (2, 7) on conflict (id) do nothing
insert into b1 values (3, 7) on conflict (id) do nothing
insert into b1 values (3, 1) returning id
delete from a1 where id = 1 returning id
select count(*) from b1
create table nope (x int references missing)
create table nope (x int references a1 (zz))
create table nope (x int references b1 (a))
create table nope (x text references a1)
create table nope (x int, y int, foreign key (x, y) references a1)
create table nope (x int, foreign key (y) references a1)
create table nope (x int, foreign key (x) references c1 (id, b))
create table nokey (x int)
create table nope (x int references nokey)
create table nope (x bigint references a1, y smallint references a1, z int references a1 on delete cascade)
select conname, pg_get_constraintdef(oid) from pg_constraint where conrelid = 'nope'::regclass order by 1
insert into nope values (5000000000, null, null)
insert into a1 values (40)
insert into nope values (40, 40, 40)
insert into nope values (40, 41, 40)
delete from a1 where id = 40
update a1 set id = 41 where id = 40
drop table a1
drop table a1 cascade
insert into nope values (99, 99, 99)
select count(*) from pg_constraint where conrelid = 'nope'::regclass
create table k (id bigint primary key)
alter table nope add column w bigint references k (id)
alter table nope add constraint nope_x foreign key (x) references k
insert into k select id from generate_series(40, 99) id
alter table nope add constraint nope_x foreign key (x) references k
alter table nope drop constraint nope_x
alter table nope drop constraint nope_x
drop table k, nope
create table t1 (id int primary key, x int check (x > 0))
create table t2 (id int primary key, x int not null references t1 on delete set null on update cascade, check (x < 100))
insert into t1 values (1, 1), (2, 2)
insert into t2 values (1, 1), (2, 2)
delete from t1 where id = 1
update t1 set id = 200 where id = 1
update t1 set id = 20 where id = 1
select * from t2 order by id
begin
insert into t2 values (3, 3)
insert into t1 values (3, 3)
rollback
begin
insert into t1 values (3, 3)
insert into t2 values (3, 3)
savepoint s
delete from t1 where id = 3
rollback to s
delete from t2 where id = 3
delete from t1 where id = 3
commit
begin isolation level repeatable read
insert into t1 values (4, 4)
insert into t2 values (4, 4)
delete from t2 where id = 4
delete from t1 where id = 4
insert into t2 values (4, 4)
rollback
begin isolation level serializable
insert into t2 values (4, 20)
delete from t1 where id = 20
rollback
select * from t2 order by id
alter table t2 rename column x to "T1"
insert into t2 values (9, 9)
select pg_get_constraintdef(oid) from pg_constraint where conrelid = 't2'::regclass and contype = 'f'
create unique index t1_x on t1 (x)
create table t3 (x int references t1 (x))
drop index t1_x
drop index t1_x cascade
create table q (a varchar(3) primary key, n numeric unique)
create table r (a text references q on update cascade, n int references q (n))
insert into q values ('abc', 1.0), ('d', 2)
insert into r values ('abc', 1), ('d', 2)
insert into r values ('abd', 1)
insert into r values ('d', 3)
update q set a = 'xyz' where a = 'abc'
delete from q where a = 'd'
update q set n = 1.00 where n = 1
update q set n = 1.5 where n = 1
select * from r order by a
