create table w (id int primary key, g text, v int, x numeric, d date, t timestamp)
insert into w values (1, 'a', 10, 1.5, '2024-01-01', '2024-01-01 10:00'), (2, 'a', 20, 2.5, '2024-01-03', '2024-01-01 11:30'), (3, 'a', 20, null, '2024-01-04', '2024-01-01 12:00'), (4, 'b', 5, 4, '2024-02-01', '2024-01-02 00:00'), (5, 'b', null, 0, '2024-02-02', null), (6, 'b', 7, -1, null, '2024-01-03 00:00'), (7, 'c', 30, 9, '2024-03-01', '2024-01-03 01:00'), (8, null, 1, 1, '2024-03-02', '2024-01-03 02:00')
select id, row_number() over (order by id desc) from w order by id
select id, g, row_number() over (partition by g order by v, id), rank() over (partition by g order by v), dense_rank() over (partition by g order by v) from w order by id
select id, rank() over (order by v nulls first), dense_rank() over (order by v desc), percent_rank() over (order by v), cume_dist() over (order by v) from w order by id
select id, ntile(3) over (order by id), ntile(10) over (order by id desc), ntile(null) over (order by id) from w order by id
select ntile(0) over () from w
select id, lag(v) over (order by id), lead(v) over (order by id), lag(v, 2) over (order by id), lead(v, 2, -1) over (order by id), lag(v, 0) over (order by id), lag(v, -1) over (order by id), lag(v, null) over (order by id) from w order by id
select id, lag(v, 1, 1.5) over (order by id), lead(g, 1, 'none') over (order by id) from w order by id
select id, first_value(v) over (partition by g order by id), last_value(v) over (partition by g order by id), nth_value(v, 2) over (partition by g order by id), nth_value(v, null) over (order by id) from w order by id
select nth_value(v, 0) over (order by id) from w
select id, sum(v) over (order by id), sum(v) over (), avg(x) over (partition by g), count(*) over (partition by g order by v), min(v) over (order by id rows 1 preceding), max(v) over (order by id rows between 1 following and 2 following) from w order by id
select id, sum(v) over (order by id rows between 1 preceding and 1 following), sum(v) over (order by id rows between current row and unbounded following), sum(v) over (order by id rows between 2 preceding and 1 preceding) from w order by id
select id, v, sum(id) over (order by v range between 5 preceding and 5 following), sum(id) over (order by v range between current row and 10 following), sum(id) over (order by v desc range between 5 preceding and current row), sum(id) over (order by v nulls first range between unbounded preceding and 0 following) from w order by id
select id, d, count(*) over (order by d range between '1 day' preceding and '1 day' following), count(*) over (order by t range between interval '1 hour' preceding and current row) from w order by id
select id, x, array_agg(id) over (order by x range between 1.5 preceding and 0.5 following) from w order by id
select id, sum(id) over (order by v groups between 1 preceding and 1 following), array_agg(id) over (order by g groups 1 preceding), count(*) over (order by g groups between current row and 1 following) from w order by id
select id, sum(v) filter (where v > 6) over (order by id), string_agg(g, ',') over (order by id), array_agg(v) over (partition by g order by id) from w order by id
select id, count(*) over w1, sum(v) over (w1 order by id), row_number() over w2 from w window w1 as (partition by g), w2 as (w1 order by id desc) order by id
select g, sum(v), rank() over (order by sum(v) desc), sum(sum(v)) over () from w group by g order by g
select g, sum(v), lag(sum(v)) over (order by g), row_number() over (order by count(*) desc, g) from w group by g having count(*) > 0 order by g
select count(*), row_number() over () from w
select * from (select id, g, row_number() over (partition by g order by id desc) as n from w) s where n = 1 order by id
select distinct rank() over (order by g) from w order by 1
select id from w order by row_number() over (order by v desc nulls last, id) limit 3
select id, row_number() over (order by v, id) + 100 as r, case when rank() over (order by v) > 3 then 'late' else 'early' end from w order by id
select id, v - lag(v, 1, 0) over (order by id) as diff from w where id < 4 order by id
select w.id, u.n, row_number() over (partition by u.n order by w.id) from w join generate_series(1, 2) as u(n) on w.id <= 2 order by 1, 2
select id, (select max(y) from (select row_number() over () as y from w as i where i.id <= w.id) s) from w order by id
select id, sum(v) over (order by id) from w where false
select row_number() over (order by id) from w limit 2
with r as (select id, rank() over (order by g) as k from w) select k, count(*) from r group by k order by k
select id from w where row_number() over () = 1
select id from w group by id having row_number() over () = 1
select count(*) from w group by row_number() over ()
select row_number() from w
select upper(g) over () from w
select nope(1) over () from w
select sum(row_number() over ()) from w
select lag(row_number() over ()) over () from w
select count(distinct v) over () from w
select sum(v) over nowhere from w
select sum(v) over (nowhere order by id) from w
select sum(v) over (q partition by g) from w window q as (partition by id)
select sum(v) over (q order by g) from w window q as (order by id)
select sum(v) over (q) from w window q as (order by id rows 1 preceding)
select sum(v) over q from w window q as (order by id rows 1 preceding) order by 1
select sum(v) over (rows between unbounded following and current row) from w
select sum(v) over (rows between current row and unbounded preceding) from w
select sum(v) over (rows between current row and 1 preceding) from w
select sum(v) over (rows between 1 following and current row) from w
select sum(v) over (groups 1 preceding) from w
select sum(v) over (range 1 preceding) from w
select sum(v) over (order by id, g range 1 preceding) from w
select sum(v) over (order by g range 1 preceding) from w
select sum(v) over (order by id rows -1 preceding) from w
select sum(v) over (order by id rows null preceding) from w
select sum(v) over (order by id range -1 preceding) from w
select sum(v) over (order by id rows v preceding) from w
select id from w for update
select row_number() over () from w for update
select id, sum(id) over (order by v range between 2147483647 preceding and 2147483647 following) from w order by id
select id, sum(v) over (order by g desc nulls last), count(v) over (order by v desc nulls first rows unbounded preceding) from w order by id
update w set v = row_number() over ()
delete from w where rank() over () = 1
insert into w (id, v) values (100, row_number() over ())
insert into w (id, v) select 100 + row_number() over (order by id), v from w where g = 'a' returning id, v
