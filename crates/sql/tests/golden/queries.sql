create table t (id int primary key, a int, c char(5) default 'x', d text)
insert into t values (1, 10, 'ab', 'hello'), (2, 20, 'cd', null), (3, 30, default, 'foo'), (4, null, null, 'bar')
create table u (id int primary key, t_id int, v bigint)
insert into u values (10, 1, 100), (11, 1, 200), (12, 3, 300), (13, null, 400)
create index u_t on u (t_id)
select 1, 'a', 1 + 2.5, null, true
select * from t order by id
select a from t where id = 2
select a from t where id = 2.0
select id from t where id > 1.5 and id <= 3 order by id
select id from t where id in (1, 3, 99) order by id
select count(*), count(a), sum(a), min(d), max(a), avg(a) from t
select a / 10 % 2 as k, count(*) from t group by 1 order by 1
select a / 10 % 2 as k, count(*) from t group by a / 10 % 2 having count(*) > 1 order by k
select t.id, count(u.id) from t left join u on u.t_id = t.id group by t.id order by t.id
select t.*, count(u.id) from t left join u on u.t_id = t.id group by t.id order by t.id
select id, a from t order by a desc limit 2
select id, a from t order by a desc nulls last, id limit 2 offset 1
select t.id, u.id, u.v from t join u on u.t_id = t.id order by u.id
select t.id, u.id from t left join u on u.t_id = t.id order by 1, 2
select t.id, u.id from t right join u on u.t_id = t.id order by 2
select t.id, u.id from t full join u on u.t_id = t.id order by 1, 2
select t.id, u.id from t, u where u.t_id = t.id and u.v > 150 order by 1, 2
select id, a, v from t join u using (id)
select * from t a natural join t b order by id
select distinct a / 20 from t order by 1
select distinct on (t_id) t_id, v from u order by t_id, v desc
select id from t where a between 10 and 20 order by id
select id from t where d like '%o%' order by id
select id from t where c = 'ab'
select id, c || '!' from t where c is not null order by id
select (select max(v) from u), (select d from t where id = 1)
select id, (select sum(v) from u where u.t_id = t.id) from t order by id
select id from t where exists (select 1 from u where u.t_id = t.id) order by id
select id from t where not exists (select 1 from u where u.t_id = t.id) order by id
select id from t where id in (select t_id from u) order by id
select id from t where id not in (select t_id from u where t_id is not null) order by id
select id from t where id = any (select t_id from u) order by id
select id from t where a > all (select v / 20 from u where t_id = 1) order by id
select array(select id from t order by id)
select 1 union select 2 union select 1 order by 1
select 1 union all select 1
select id from t intersect select t_id from u order by 1
select id from t except select t_id from u order by 1
select 'x' union select d from t order by 1
with x as (select id, a from t where a is not null) select count(*) from x p, x q where p.a <= q.a
with x (n) as (values (1), (2)) select sum(n) from x
select * from (select id, a * 2 as b from t) s where b > 30 order by id
select t.id, l.v from t, lateral (select v from u where u.t_id = t.id order by v desc limit 1) l order by 1
select t.id, l.n from t left join lateral (select count(*) as n from u where u.t_id = t.id) l on true order by 1
values (1, 'a'), (2, 'b')
select * from generate_series(1, 5, 2) g
select g, g * 2 from generate_series(3, 1, -1) as g
select sum(g) from generate_series(1, 100000) g
select count(distinct t_id), sum(distinct v / 200) from u
select count(*) filter (where v > 150), sum(v) filter (where t_id = 1) from u
select case when a > 15 then 'big' when a is null then 'none' else 'small' end from t order by id
select coalesce(a, -1), nullif(a, 10), greatest(a, 15), least(a, 15) from t order by id
select nope from t
select t.nope from t
select x.id from t
select * from nope
select id from t, u
select id from t group by a
select sum(sum(a)) from t
select 1 from t where sum(a) > 1
select 1 / 0
select 'abc'::int
select foo(1)
select 1 + 'a'
select 1 from t order by 2
select (select id from t)
select (select id, a from t where id = 1)
select 1, 2 union select 1
select 1 limit -1
table u
select id as x from t where x = 1
select id as x from t order by x desc limit 1
select -id as id from t order by id limit 1
select upper(d), length(d), substring(d from 2 for 2) from t where id = 1
select '2024-01-31'::date + 1, date '2024-03-01' - date '2024-02-01', '1 day'::interval * 2
select now() = current_timestamp, current_date = now()::date
select array[1, 2] || array[3], '{a,"b c"}'::text[] || '{d,NULL}', array[1] || '{}', null::integer[] || array[1], array['x,y'] || array['"']
select array(select relname || '!' from (values ('a'), ('b')) as t(relname)) || array['c']
select n is distinct from 1 and true, n is not distinct from 1 or false, not n is distinct from 1, n > 0 is distinct from true and n is null from (values (1), (null), (2)) v(n);
