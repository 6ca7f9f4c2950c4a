create table t (id int primary key, a int not null, b text default 'none')
insert into t values (1, 10)
insert into t (a, id) values (20, 2), (30, 3)
insert into t values (1, 11)
insert into t (id) values (9)
insert into t values (4, 40, 'x', 5)
insert into t (id, nope) values (4, 4)
insert into t values (4, 'abc')
insert into t values (4, 40, 'four') returning *
insert into t select g, g * 10, 'g' || g from generate_series(5, 8) g
select * from t order by id
update t set a = a + 1 where id = 1
update t set a = a + 1 where id = 100
update t set a = a * 2, b = default where id in (2, 3) returning id, a, b
update t set id = id + 100 where id = 8
update t set id = 1 where id = 2
update t set a = null where id = 1
update t set nope = 1
update t set a = (select max(a) from t) where id = 5
update t set a = u.id from t u where u.id = t.id + 1 and t.id = 6
select * from t order by id
delete from t where id = 7
delete from t where a > 1000
delete from t using t u where t.id = u.id + 1 and u.id = 5 returning t.id
insert into t values (1, 99) on conflict do nothing
insert into t values (1, 99) on conflict (id) do update set a = excluded.a, b = t.b || '!' returning *
insert into t values (1, 5) on conflict (id) do update set a = 0 where t.a < 50
insert into t values (1, 5) on conflict (a) do nothing
create unique index t_b on t (b)
update t set b = id::text
create unique index t_b on t (b)
insert into t values (50, 1, '1')
insert into t values (50, 1, '1') on conflict (b) do update set a = t.a + 1 returning id, a
insert into t values (51, 1, null), (52, 1, null)
select id, b from t where b = '1'
select id from t where b is null order by id
delete from t
select count(*) from t
create table s (id serial primary key, v int)
insert into s (v) values (1), (2) returning id
insert into s values (default, 3) returning id
select currval('s_id_seq'), lastval()
select nextval('s_id_seq')
truncate s restart identity
insert into s (v) values (7) returning id
create table i (id int generated always as identity, v int)
insert into i (v) values (1) returning id
insert into i values (5, 1)
insert into s select id + 100, v from s
insert into s select id + 1000, v from s
select * from s order by id
create table n (a numeric(6,2), b varchar(3), c timestamp)
insert into n values (1.005, 'abc', '2024-01-02 03:04:05')
insert into n values (12345.6, 'abc', null)
insert into n values (1, 'abcd', null)
insert into n values (1, 'abc   ', null)
select * from n
update n set b = 'x' where a = 1.01
select b, a + 1 from n where c > '2024-01-01' order by a
create table hw (id integer primary key, n integer)
insert into hw select i, i from generate_series(1, 5) i
update hw set n = (select sum(x.n) from hw x where x.id <> hw.id) returning id, n
delete from hw where n = any (select x.n from hw x join hw y on x.id = y.id where y.id < 4) returning id
delete from hw where (select count(*) from hw x where x.id <> hw.id) > 0 returning id
select * from hw
drop table hw
