create table t (id int primary key, a int)
begin
insert into t values (1, 1)
savepoint x
insert into t values (2, 2)
rollback to x
insert into t values (3, 3)
release x
commit
select * from t order by id
begin
insert into t values (1, 1)
select 1
commit
begin
savepoint a
insert into t values (1, 1)
select 1
rollback to a
insert into t values (4, 4)
end
select * from t order by id
rollback
commit
begin
begin
abort
savepoint x
rollback to x
start transaction read only
insert into t values (9, 9)
rollback
begin isolation level repeatable read
show transaction_isolation
commit
begin isolation level serializable, read only
show transaction_read_only
rollback
set statement_timeout = '5s'
show statement_timeout
reset statement_timeout
show statement_timeout
set nope = 1
show nope
begin
set local lock_timeout = 100
show lock_timeout
commit
show lock_timeout
select 1; select 2
begin; insert into t values (21, 1); commit; select count(*) from t where id = 21
prepare p as select a from t where id = $1
execute p(1)
execute p('3')
execute p
prepare p as select 1
deallocate p
execute p(1)
prepare q (int) as insert into t values ($1, $1 * 2) returning *
execute q(30)
begin
declare c cursor for select id from t order by id
fetch 2 from c
fetch c
move 1 in c
fetch all from c
close c
fetch c
rollback
declare c cursor for select 1
selec 1
select from where
