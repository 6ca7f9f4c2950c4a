create table p (id int primary key, u int unique)
create table c (id int primary key, p int references p deferrable initially deferred, q int constraint cq references p (u) deferrable)
insert into c values (1, 1)
begin
insert into c values (1, 1)
insert into p values (1, 10)
commit
select * from c
begin
insert into c values (2, 2, 10)
insert into c values (3, 3, 11)
rollback
begin
insert into c values (2, 2, 10)
commit
select * from c order by id
begin
set constraints cq deferred
insert into c values (2, 1, 11)
insert into p values (2, 11)
set constraints all immediate
insert into c values (3, 5, 11)
rollback
begin
insert into c values (2, 2, 10)
set constraints all immediate
rollback
begin
insert into c values (2, 2, 10)
savepoint a
insert into c values (3, 3, 10)
rollback to a
insert into p values (2, 20)
commit
select * from c order by id
begin
delete from p where id = 2
delete from c where id = 2
commit
begin
delete from p where id = 1
commit
begin
set constraints cq deferred
update p set id = 7 where id = 1
insert into p values (1, 12)
update p set u = 99 where id = 7
update c set q = 99 where id = 1
commit
select * from p order by id
select * from c order by id
begin
insert into c values (9, 9)
update c set p = 1 where id = 9
insert into c values (10, 10)
delete from c where id = 10
commit
select * from c order by id
set constraints nope deferred
set constraints p_pkey deferred
set constraints all deferred
alter table c alter constraint cq not deferrable
alter table c alter constraint nope deferrable
alter table c alter constraint c_pkey deferrable
alter table c alter constraint c_p_fkey deferrable initially immediate
select conname, condeferrable, condeferred, pg_get_constraintdef(oid) from pg_constraint where conrelid = 'c'::regclass and contype = 'f' order by 1
create table d (id int references p not deferrable initially deferred)
create table d (id int, p int, foreign key (p) references p initially deferred)
alter table d add constraint dd foreign key (id) references p deferrable initially immediate
begin
insert into d values (1, 50)
alter table d drop constraint d_p_fkey
commit
select * from d
begin
insert into d values (100, 1)
rollback
create table i (a int generated always as identity, b int)
insert into i overriding system value values (5, 1) returning *
insert into i (b, a) overriding system value select 2, 6 returning *
insert into i (b) values (3) returning *
insert into i values (7, 1)
drop table i, d, c, p
