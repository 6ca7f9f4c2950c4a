with recursive n (i) as (select 1 union all select i + 1 from n where i < 5) select * from n
with recursive n (i) as (values (1) union all select i + 1 from n where i < 5) select sum(i) from n
with recursive n (i) as (select 1 union all select i + 1 from n) select * from n limit 4
with recursive n (i) as (select 1 union select (i * 2) % 7 from n) select * from n order by i
with recursive n (i) as (select 1 union all select i + 1 from n where i < 3) select a.i, b.i from n a, n b order by 1, 2
create table tree (id int primary key, parent int, name text)
insert into tree values (1, null, 'root'), (2, 1, 'a'), (3, 1, 'b'), (4, 2, 'aa'), (5, 4, 'aaa'), (6, 3, 'ba')
with recursive below as (select id, name, 0 as depth from tree where parent is null union all select t.id, t.name, b.depth + 1 from tree t join below b on t.parent = b.id) select * from below order by id
with recursive path (id, way) as (select id, name from tree where parent is null union all select t.id, way || '/' || t.name from path join tree t on t.parent = path.id) select way from path order by way
with recursive up (id, parent) as (select id, parent from tree where id = 5 union all select t.id, t.parent from tree t, up where t.id = up.parent) select id from up
with recursive up as (select id, parent from tree where id = 5 union select t.id, t.parent from up left join tree t on t.id = up.parent where t.id is not null) select id from up
with recursive fib (a, b) as (select 0, 1 union all select b, a + b from fib where b < 100) select a from fib
with recursive one as (select 1 as x), two as (select x + 1 as y from one) select y from two
with recursive plain as (select 1 as x union all select 2) select * from plain order by 1
with recursive r as (select 1) select * from r
with recursive r as (select i from r) select * from r
with recursive r (i) as (select i from r union all select 1) select * from r
with recursive r (i) as (select 1 union all select a.i + 1 from r a, r b where a.i < 3) select * from r
with recursive r (i) as (select 1 union all select max(i) from r) select * from r
with recursive r (i) as (select 1 union all select i + 1.5 from r where i < 3) select * from r
with recursive r (i) as (select 1 union all select i + 1, 2 from r where i < 3) select * from r
with recursive r (i) as (select 1 union all select t.id from tree t left join r on r.i = t.parent) select * from r
with recursive r (i) as (select 1 intersect select i + 1 from r where i < 3) select * from r
with recursive r (i) as (select 1 union all select i + 1 from r order by 1) select * from r
with recursive a (x) as (select 1 union all select x + 1 from a where x < 3), b (y) as (select x from a union all select y + 10 from b where y < 20) select * from b order by y
with recursive d as (select distinct parent as id from tree where id = 6 union all select distinct t.parent from tree t join d on t.id = d.id where t.parent is not null) select * from d
with recursive w as (select 1 as i, 'a'::text as s union all select i + 1, s || 'b' from w where i < 4) select i, s, row_number() over (order by i desc) from w order by i
with recursive g (i) as (select generate_series from generate_series(1, 3) union all select i * 10 from g where i < 100) select count(*), sum(i) from g
insert into tree with recursive n (i) as (select 100 union all select i + 1 from n where i < 103) select i, 1, 'n' || i from n
select count(*) from tree where id >= 100
create view deep as with recursive below as (select id, 0 as depth from tree where parent is null union all select t.id, b.depth + 1 from tree t join below b on t.parent = b.id) select depth, count(*) from below group by depth
select * from deep order by 1
