--
-- PostgreSQL database dump
--


-- Dumped from database version 15.18 (Debian 15.18-0+deb12u1)
-- Dumped by pg_dump version 15.18 (Debian 15.18-0+deb12u1)

SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;

--
-- Name: shop; Type: SCHEMA; Schema: -; Owner: dump_owner
--

CREATE SCHEMA shop;


ALTER SCHEMA shop OWNER TO dump_owner;

--
-- Name: SCHEMA shop; Type: COMMENT; Schema: -; Owner: dump_owner
--

COMMENT ON SCHEMA shop IS 'what is sold';


SET default_tablespace = '';

SET default_table_access_method = heap;

--
-- Name: log; Type: TABLE; Schema: public; Owner: postgres
--

CREATE TABLE public.log (
    at timestamp without time zone,
    what text,
    bytes bytea,
    ratio double precision,
    doc jsonb,
    key uuid
);


ALTER TABLE public.log OWNER TO postgres;

--
-- Name: numbers; Type: SEQUENCE; Schema: public; Owner: postgres
--

CREATE SEQUENCE public.numbers
    START WITH 7
    INCREMENT BY 3
    NO MINVALUE
    MAXVALUE 1000
    CACHE 1
    CYCLE;


ALTER TABLE public.numbers OWNER TO postgres;

--
-- Name: SEQUENCE numbers; Type: COMMENT; Schema: public; Owner: postgres
--

COMMENT ON SEQUENCE public.numbers IS 'numbers';


--
-- Name: customers; Type: TABLE; Schema: shop; Owner: postgres
--

CREATE TABLE shop.customers (
    id integer NOT NULL,
    name character varying(40) NOT NULL,
    born date,
    email text,
    balance numeric(10,2) DEFAULT 0.00,
    note text DEFAULT 'it''s new'::text,
    created timestamp with time zone DEFAULT now(),
    CONSTRAINT customers_balance_check CHECK ((balance >= ('-100'::integer)::numeric))
);


ALTER TABLE shop.customers OWNER TO postgres;

--
-- Name: TABLE customers; Type: COMMENT; Schema: shop; Owner: postgres
--

COMMENT ON TABLE shop.customers IS 'who buys';


--
-- Name: COLUMN customers.email; Type: COMMENT; Schema: shop; Owner: postgres
--

COMMENT ON COLUMN shop.customers.email IS 'where to write';


--
-- Name: customers_id_seq; Type: SEQUENCE; Schema: shop; Owner: postgres
--

CREATE SEQUENCE shop.customers_id_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;


ALTER TABLE shop.customers_id_seq OWNER TO postgres;

--
-- Name: customers_id_seq; Type: SEQUENCE OWNED BY; Schema: shop; Owner: postgres
--

ALTER SEQUENCE shop.customers_id_seq OWNED BY shop.customers.id;


--
-- Name: lines; Type: TABLE; Schema: shop; Owner: postgres
--

CREATE TABLE shop.lines (
    order_id bigint NOT NULL,
    line smallint NOT NULL,
    sku text,
    amount integer DEFAULT 1
);


ALTER TABLE shop.lines OWNER TO postgres;

--
-- Name: orders; Type: TABLE; Schema: shop; Owner: postgres
--

CREATE TABLE shop.orders (
    id bigint NOT NULL,
    customer integer NOT NULL,
    placed date DEFAULT CURRENT_DATE,
    active boolean DEFAULT true
);


ALTER TABLE shop.orders OWNER TO postgres;

--
-- Name: orders_id_seq; Type: SEQUENCE; Schema: shop; Owner: postgres
--

ALTER TABLE shop.orders ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME shop.orders_id_seq
    START WITH 1000
    INCREMENT BY 10
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);


--
-- Name: products; Type: TABLE; Schema: shop; Owner: dump_owner
--

CREATE TABLE shop.products (
    sku text NOT NULL,
    price numeric(8,2) NOT NULL,
    gross numeric(8,2) GENERATED ALWAYS AS ((price * 1.19)) STORED,
    tags text,
    CONSTRAINT price_positive CHECK ((price > (0)::numeric))
);


ALTER TABLE shop.products OWNER TO dump_owner;

--
-- Name: CONSTRAINT price_positive ON products; Type: COMMENT; Schema: shop; Owner: dump_owner
--

COMMENT ON CONSTRAINT price_positive ON shop.products IS 'nothing is free';


--
-- Name: totals; Type: VIEW; Schema: shop; Owner: postgres
--

CREATE VIEW shop.totals AS
 SELECT o.id,
    o.customer,
    sum(l.amount) AS pieces
   FROM (shop.orders o
     JOIN shop.lines l ON ((l.order_id = o.id)))
  GROUP BY o.id, o.customer;


ALTER TABLE shop.totals OWNER TO postgres;

--
-- Name: VIEW totals; Type: COMMENT; Schema: shop; Owner: postgres
--

COMMENT ON VIEW shop.totals IS 'pieces by order';


--
-- Name: customers id; Type: DEFAULT; Schema: shop; Owner: postgres
--

ALTER TABLE ONLY shop.customers ALTER COLUMN id SET DEFAULT nextval('shop.customers_id_seq'::regclass);


--
-- Data for Name: log; Type: TABLE DATA; Schema: public; Owner: postgres
--

COPY public.log (at, what, bytes, ratio, doc, key) FROM stdin;
2026-01-01 10:00:00	start	\\xdeadbeef	0.5	{"a": [1, 2]}	00000000-0000-0000-0000-000000000001
\.


--
-- Data for Name: customers; Type: TABLE DATA; Schema: shop; Owner: postgres
--

COPY shop.customers (id, name, born, email, balance, note, created) FROM stdin;
1	Ann	1990-01-02	ann@example.org	12.50	a\ttab	2026-01-01 12:00:00.5+00
2	Bob	\N	\N	-3.00	two\nlines	2026-01-01 12:00:00.5+00
3	Çelik	1985-12-31	c@example.org	0.00	\\backslash	2026-01-01 12:00:00.5+00
\.


--
-- Data for Name: lines; Type: TABLE DATA; Schema: shop; Owner: postgres
--

COPY shop.lines (order_id, line, sku, amount) FROM stdin;
1000	1	a-1	3
1000	2	b-2	1
1010	1	a-1	7
\.


--
-- Data for Name: orders; Type: TABLE DATA; Schema: shop; Owner: postgres
--

COPY shop.orders (id, customer, placed, active) FROM stdin;
1000	1	2026-01-01	t
1010	2	2026-02-02	t
\.


--
-- Data for Name: products; Type: TABLE DATA; Schema: shop; Owner: dump_owner
--

COPY shop.products (sku, price, tags) FROM stdin;
a-1	1.50	x
b-2	20.00	\N
\.


--
-- Name: numbers; Type: SEQUENCE SET; Schema: public; Owner: postgres
--

SELECT pg_catalog.setval('public.numbers', 10, true);


--
-- Name: customers_id_seq; Type: SEQUENCE SET; Schema: shop; Owner: postgres
--

SELECT pg_catalog.setval('shop.customers_id_seq', 3, true);


--
-- Name: orders_id_seq; Type: SEQUENCE SET; Schema: shop; Owner: postgres
--

SELECT pg_catalog.setval('shop.orders_id_seq', 1010, true);


--
-- Name: customers customers_email_key; Type: CONSTRAINT; Schema: shop; Owner: postgres
--

ALTER TABLE ONLY shop.customers
    ADD CONSTRAINT customers_email_key UNIQUE (email);


--
-- Name: customers customers_pkey; Type: CONSTRAINT; Schema: shop; Owner: postgres
--

ALTER TABLE ONLY shop.customers
    ADD CONSTRAINT customers_pkey PRIMARY KEY (id);


--
-- Name: lines lines_order_id_sku_key; Type: CONSTRAINT; Schema: shop; Owner: postgres
--

ALTER TABLE ONLY shop.lines
    ADD CONSTRAINT lines_order_id_sku_key UNIQUE (order_id, sku);


--
-- Name: lines lines_pkey; Type: CONSTRAINT; Schema: shop; Owner: postgres
--

ALTER TABLE ONLY shop.lines
    ADD CONSTRAINT lines_pkey PRIMARY KEY (order_id, line);


--
-- Name: orders orders_pkey; Type: CONSTRAINT; Schema: shop; Owner: postgres
--

ALTER TABLE ONLY shop.orders
    ADD CONSTRAINT orders_pkey PRIMARY KEY (id);


--
-- Name: products products_pkey; Type: CONSTRAINT; Schema: shop; Owner: dump_owner
--

ALTER TABLE ONLY shop.products
    ADD CONSTRAINT products_pkey PRIMARY KEY (sku);


--
-- Name: customers_name_born; Type: INDEX; Schema: shop; Owner: postgres
--

CREATE UNIQUE INDEX customers_name_born ON shop.customers USING btree (name, born);


--
-- Name: orders_by_date; Type: INDEX; Schema: shop; Owner: postgres
--

CREATE INDEX orders_by_date ON shop.orders USING btree (placed, customer);


--
-- Name: INDEX orders_by_date; Type: COMMENT; Schema: shop; Owner: postgres
--

COMMENT ON INDEX shop.orders_by_date IS 'for reports';


--
-- Name: lines lines_order_id_fkey; Type: FK CONSTRAINT; Schema: shop; Owner: postgres
--

ALTER TABLE ONLY shop.lines
    ADD CONSTRAINT lines_order_id_fkey FOREIGN KEY (order_id) REFERENCES shop.orders(id) ON UPDATE CASCADE ON DELETE CASCADE;


--
-- Name: lines lines_sku_fkey; Type: FK CONSTRAINT; Schema: shop; Owner: postgres
--

ALTER TABLE ONLY shop.lines
    ADD CONSTRAINT lines_sku_fkey FOREIGN KEY (sku) REFERENCES shop.products(sku);


--
-- Name: orders orders_customer_fkey; Type: FK CONSTRAINT; Schema: shop; Owner: postgres
--

ALTER TABLE ONLY shop.orders
    ADD CONSTRAINT orders_customer_fkey FOREIGN KEY (customer) REFERENCES shop.customers(id) ON DELETE CASCADE;


--
-- Name: SCHEMA public; Type: ACL; Schema: -; Owner: pg_database_owner
--

REVOKE USAGE ON SCHEMA public FROM PUBLIC;


--
-- Name: SCHEMA shop; Type: ACL; Schema: -; Owner: dump_owner
--

GRANT USAGE ON SCHEMA shop TO dump_reader;


--
-- Name: SEQUENCE numbers; Type: ACL; Schema: public; Owner: postgres
--

GRANT USAGE ON SEQUENCE public.numbers TO dump_reader;


--
-- Name: TABLE customers; Type: ACL; Schema: shop; Owner: postgres
--

GRANT SELECT ON TABLE shop.customers TO dump_reader;


--
-- Name: TABLE orders; Type: ACL; Schema: shop; Owner: postgres
--

GRANT SELECT,INSERT,UPDATE ON TABLE shop.orders TO dump_reader WITH GRANT OPTION;


--
-- Name: TABLE totals; Type: ACL; Schema: shop; Owner: postgres
--

GRANT SELECT ON TABLE shop.totals TO dump_reader;


--
-- PostgreSQL database dump complete
--


