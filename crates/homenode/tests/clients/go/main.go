// What a program in Go sees: pgx with its pool, batches, CopyFrom and types in binary, and database/sql over it, against the
// server on the port given.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"reflect"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"
)

var background = context.Background()

func check(err error) {
	if err != nil {
		log.Output(2, err.Error())
		os.Exit(1)
	}
}

func equal(found, expected any) {
	if !reflect.DeepEqual(found, expected) {
		log.Output(2, fmt.Sprintf("%v is not %v", found, expected))
		os.Exit(1)
	}
}

func fails(err error, code string) {
	var server *pgconn.PgError
	if !errors.As(err, &server) || server.Code != code {
		log.Output(2, fmt.Sprintf("%v instead of %s", err, code))
		os.Exit(1)
	}
}

func exec(connection *pgx.Conn, statement string, arguments ...any) {
	_, err := connection.Exec(background, statement, arguments...)
	check(err)
}

type everything struct {
	ID      int32
	Small   int16
	Number  int32
	Big     int64
	Exact   pgtype.Numeric
	Single  float32
	Double  float64
	Words   string
	Bytes   []byte
	Day     time.Time
	Clock   pgtype.Time
	Moment  time.Time
	Instant time.Time
	Span    pgtype.Interval
	Truth   bool
	Mark    [16]byte
	Numbers []int32
	Texts   []string
}

func values(connection *pgx.Conn) {
	exec(connection, `create table everything (id integer primary key, small smallint, number integer, big bigint, exact numeric(20, 5),
		single real, double double precision, words text, bytes bytea, day date, clock time, moment timestamp, instant timestamptz,
		span interval, truth boolean, mark uuid, numbers integer[], texts text[])`)
	var exact pgtype.Numeric
	check(exact.Scan("-123456789012345.67891"))
	row := everything{1, -32768, 1<<31 - 1, -1 << 63, exact, 0.5, 1e300, "Grüße, 世界 😀 '\\", []byte{0, 1, 255},
		time.Date(2024, 2, 29, 0, 0, 0, 0, time.UTC), pgtype.Time{Microseconds: 86399999999, Valid: true},
		time.Date(1999, 12, 31, 23, 59, 59, 1000, time.UTC), time.Date(2020, 5, 6, 7, 8, 9, 0, time.UTC),
		pgtype.Interval{Microseconds: 5, Days: 3, Months: 14, Valid: true}, true, [16]byte{1, 2, 3, 15: 255}, []int32{1, 2, 3},
		[]string{"a,b", `c"d`, ""}}
	var arguments []any
	fields := reflect.ValueOf(row)
	marks := ""
	for i := 0; i < fields.NumField(); i++ {
		arguments = append(arguments, fields.Field(i).Interface())
		marks += fmt.Sprintf(", $%d", i+1)
	}
	exec(connection, "insert into everything values ("+marks[2:]+")", arguments...)
	rows, err := connection.Query(background, "select * from everything")
	check(err)
	found, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[everything])
	check(err)
	found.Instant = found.Instant.UTC()
	equal(found, row)
	exec(connection, "insert into everything (id) values (2)")
	var words *string
	var numbers []int32
	check(connection.QueryRow(background, "select words, numbers from everything where id = $1", 2).Scan(&words, &numbers))
	equal(words == nil && numbers == nil, true)
	check(connection.QueryRow(background, "select array_agg(id order by id) from everything where id = any($1)", []int32{2, 1, 7}).Scan(&numbers))
	equal(numbers, []int32{1, 2})
	fmt.Println("values")
}

func failures(connection *pgx.Conn) {
	_, err := connection.Exec(background, "insert into everything (id) values ($1)", 1)
	fails(err, "23505")
	_, err = connection.Exec(background, "select * from nowhere")
	fails(err, "42P01")
	_, err = connection.Exec(background, "select 1 / $1::integer", 0)
	fails(err, "22012")
	limited, cancel := context.WithTimeout(background, 300*time.Millisecond)
	defer cancel()
	other, err := pgx.ConnectConfig(background, connection.Config())
	check(err)
	_, err = other.Exec(limited, "select pg_sleep(60)")
	equal(errors.Is(err, context.DeadlineExceeded), true)
	fmt.Println("failures")
}

func bulk(connection *pgx.Conn) {
	exec(connection, "create table bulk (id integer primary key, word text, day date)")
	rows := make([][]any, 5000)
	for i := range rows {
		rows[i] = []any{i, fmt.Sprint("word ", i), time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)}
	}
	count, err := connection.CopyFrom(background, pgx.Identifier{"bulk"}, []string{"id", "word", "day"}, pgx.CopyFromRows(rows))
	check(err)
	equal(count, int64(5000))
	batch := &pgx.Batch{}
	for i := 0; i < 100; i++ {
		batch.Queue("update bulk set word = $1 where id = $2 returning word", fmt.Sprint("new ", i), i)
	}
	results := connection.SendBatch(background, batch)
	for i := 0; i < 100; i++ {
		var word string
		check(results.QueryRow().Scan(&word))
		equal(word, fmt.Sprint("new ", i))
	}
	check(results.Close())
	check(pgx.BeginFunc(background, connection, func(outer pgx.Tx) error {
		_, err := outer.Exec(background, "delete from bulk where id < 1000")
		check(err)
		inner, err := outer.Begin(background)
		check(err)
		_, err = inner.Exec(background, "delete from bulk")
		check(err)
		return inner.Rollback(background)
	}))
	var left int
	check(connection.QueryRow(background, "select count(*) from bulk").Scan(&left))
	equal(left, 4000)
	fmt.Println("bulk")
}

func pools(where string) {
	pool, err := pgxpool.New(background, where+"&pool_max_conns=8")
	check(err)
	defer pool.Close()
	_, err = pool.Exec(background, "create table counter (id integer primary key, n integer not null)")
	check(err)
	_, err = pool.Exec(background, "insert into counter values (1, 0)")
	check(err)
	var group sync.WaitGroup
	for i := 0; i < 200; i++ {
		group.Add(1)
		go func() {
			defer group.Done()
			_, err := pool.Exec(background, "update counter set n = n + 1 where id = 1")
			check(err)
		}()
	}
	group.Wait()
	database, err := sql.Open("pgx", where)
	check(err)
	defer database.Close()
	var n int
	check(database.QueryRow("select n from counter").Scan(&n))
	equal(n, 200)
	transaction, err := database.BeginTx(background, &sql.TxOptions{Isolation: sql.LevelSerializable, ReadOnly: true})
	check(err)
	_, err = transaction.Exec("update counter set n = 0")
	fails(err, "25006")
	check(transaction.Rollback())
	fmt.Println("pools")
}

func main() {
	log.SetFlags(log.Lshortfile)
	where := "postgres://postgres@127.0.0.1:" + os.Args[1] + "/postgres?sslmode=disable"
	connection, err := pgx.Connect(background, where)
	check(err)
	values(connection)
	failures(connection)
	bulk(connection)
	pools(where)
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec,
		pgx.QueryExecModeSimpleProtocol} {
		var sum int
		var word string
		check(connection.QueryRow(background, "select $1::integer + 1, $2::text", mode, 41, "it's").Scan(&sum, &word))
		equal(fmt.Sprint(sum, word), "42it's")
	}
	fmt.Println("modes")
}
