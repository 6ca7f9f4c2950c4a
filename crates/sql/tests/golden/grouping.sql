create table sales (region text, product text, year int, amount int)
insert into sales values ('n', 'a', 1, 10), ('n', 'b', 1, 20), ('s', 'a', 1, 30), ('s', 'a', 2, 40), (null, 'b', 2, 50), ('n', null, 2, 60)
select region, product, sum(amount) from sales group by rollup (region, product) order by grouping(region), region, grouping(product), product
select region, product, sum(amount), grouping(region, product) from sales group by cube (region, product) order by 4, 1, 2
select region, product, count(*) from sales group by grouping sets ((region), (product), ()) order by 1, 2, 3
select region, product, count(*) from sales group by grouping sets ((region, product), (region), (region)) order by 1, 2, 3
select region, year, sum(amount) from sales group by region, rollup (year) order by 1, 2
select region, product, year, sum(amount) from sales group by rollup (region), cube (product, year) order by 1, 2, 3, 4
select region, product, year, sum(amount) from sales group by rollup ((region, product), year) order by 1, 2, 3, 4
select grouping(region), region, sum(amount) from sales group by rollup (region) having grouping(region) = 0 and sum(amount) > 60 order by 2
select region, sum(amount) from sales group by rollup (region) having sum(amount) > 60 order by 1
select case when grouping(region) = 1 then 'all' else coalesce(region, '?') end as r, count(distinct product), avg(year) from sales group by rollup (region) order by 1
select region as r, sum(amount) filter (where year = 1) from sales group by rollup (r) order by 1
select sum(amount) from sales where false group by rollup (region)
select region, sum(amount) from sales where false group by grouping sets ((region), (), ()) order by 1
select count(*) from sales group by ()
select count(*) from sales where false group by ()
select count(*), region from sales group by (region) order by 2
select region, product, count(*) from sales group by (region, product) order by 1, 2
select grouping(region), region, count(*) from sales group by region order by 2
select upper(region), count(*), grouping(upper(region)) from sales group by rollup (upper(region)) order by 3, 1
select region, product from sales group by rollup (region)
select grouping(product) from sales group by rollup (region)
select grouping(region) from sales
select region, sum(sum(amount)) over (order by region) from sales group by rollup (region) order by 1
select region, rank() over (partition by grouping(region) order by sum(amount) desc) as place from sales group by rollup (region) order by 1, 2
select distinct grouping(region, product) from sales group by cube (region, product) order by 1
select region, product, sum(amount) from sales group by 1, rollup (2) order by 1, 2
select year, year + 1, count(*) from sales group by rollup (year, year + 1) order by 1, 2
select s.region, count(*) from sales s join sales t using (region) group by rollup (s.region) order by 1
select count(*) from (select region, product from sales group by cube (region, product)) x
create table keyed (id int primary key, v int)
select id, v from keyed group by rollup (id)
select count(*) from sales where grouping(region) = 0
