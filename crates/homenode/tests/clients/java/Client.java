// What a program in Java sees: PostgreSQL's JDBC driver against the server on the port given. Statements that are used often change to
// prepared ones and binary values after five uses, so everything runs more often than that.

import java.io.StringReader;
import java.math.BigDecimal;
import java.sql.*;
import java.time.*;
import java.util.*;
import org.postgresql.PGConnection;

public class Client {
    static String where;

    static void equal(Object found, Object expected) {
        if (!Objects.equals(found, expected)) throw new AssertionError(found + " is not " + expected);
    }

    static void fails(Connection connection, String statement, String state) throws SQLException {
        try (Statement run = connection.createStatement()) {
            run.execute(statement);
        } catch (SQLException error) {
            equal(error.getSQLState(), state);
            return;
        }
        throw new AssertionError(statement + " succeeded");
    }

    static void values(Connection connection) throws SQLException {
        try (Statement run = connection.createStatement()) {
            run.execute("create table everything (id serial primary key, small smallint, number integer, big bigint, exact numeric(20, 5),"
                + " single real, twice double precision, words text, bytes bytea, day date, clock time, moment timestamp,"
                + " instant timestamptz, truth boolean, mark uuid, numbers integer[], texts text[])");
        }
        OffsetDateTime instant = OffsetDateTime.of(2020, 5, 6, 7, 8, 9, 123456000, ZoneOffset.UTC);
        Object[] row = {(short) -32768, Integer.MAX_VALUE, Long.MIN_VALUE, new BigDecimal("-123456789012345.67891"), 0.5f, 1e300,
            "Grüße, 世界 😀 '\\", new byte[] {0, 1, -1}, LocalDate.of(2024, 2, 29), LocalTime.of(23, 59, 59, 999999000),
            LocalDateTime.of(1999, 12, 31, 23, 59, 59, 1000), instant, true, UUID.fromString("01234567-89ab-cdef-0123-456789abcdef"),
            new Integer[] {1, null, 3}, new String[] {"a,b", "c\"d", null, ""}};
        String insert = "insert into everything (small, number, big, exact, single, twice, words, bytes, day, clock, moment, instant, truth,"
            + " mark, numbers, texts) values (?" + ", ?".repeat(row.length - 1) + ")";
        try (PreparedStatement prepared = connection.prepareStatement(insert, Statement.RETURN_GENERATED_KEYS)) {
            for (int id = 1; id <= 10; id++) {
                for (int i = 0; i < row.length; i++) prepared.setObject(i + 1, row[i]);
                equal(prepared.executeUpdate(), 1);
                ResultSet keys = prepared.getGeneratedKeys();
                keys.next();
                equal(keys.getInt("id"), id);
            }
        }
        try (PreparedStatement prepared = connection.prepareStatement("select * from everything where id = ?")) {
            for (int id = 1; id <= 10; id++) {
                prepared.setInt(1, id);
                ResultSet found = prepared.executeQuery();
                equal(found.next(), true);
                equal(found.getShort(2), row[0]);
                equal(found.getInt("number"), row[1]);
                equal(found.getLong(4), row[2]);
                equal(found.getBigDecimal(5), row[3]);
                equal(found.getFloat(6), row[4]);
                equal(found.getDouble(7), row[5]);
                equal(found.getString(8), row[6]);
                equal(Arrays.equals(found.getBytes(9), (byte[]) row[7]), true);
                Class<?>[] classes = {LocalDate.class, LocalTime.class, LocalDateTime.class, OffsetDateTime.class, Boolean.class, UUID.class};
                for (int i = 0; i < classes.length; i++) equal(found.getObject(10 + i, classes[i]), row[8 + i]);
                equal(Arrays.asList((Object[]) found.getArray(16).getArray()), Arrays.asList(1, null, 3));
                equal(Arrays.asList((Object[]) found.getArray(17).getArray()), Arrays.asList("a,b", "c\"d", null, ""));
            }
        }
        System.out.println("values");
    }

    static void errors(Connection connection) throws SQLException {
        fails(connection, "insert into everything (id) values (1)", "23505");
        fails(connection, "select * from nowhere", "42P01");
        fails(connection, "select 1 / 0", "22012");
        connection.setAutoCommit(false);
        try (Statement run = connection.createStatement()) {
            run.execute("insert into everything (id) values (100)");
            Savepoint savepoint = connection.setSavepoint("one");
            fails(connection, "insert into everything (id) values (100)", "23505");
            fails(connection, "select 1", "25P02");
            connection.rollback(savepoint);
            connection.commit();
            run.setFetchSize(7);
            ResultSet found = run.executeQuery("select i from generate_series(1, 100) i");
            int sum = 0;
            while (found.next()) sum += found.getInt(1);
            equal(sum, 5050);
            connection.commit();
            connection.setTransactionIsolation(Connection.TRANSACTION_SERIALIZABLE);
            found = run.executeQuery("show transaction_isolation");
            found.next();
            equal(found.getString(1), "serializable");
            connection.commit();
            connection.setTransactionIsolation(Connection.TRANSACTION_READ_COMMITTED);
            connection.setReadOnly(true);
            fails(connection, "delete from everything", "25006");
            connection.rollback();
            connection.setReadOnly(false);
        }
        connection.setAutoCommit(true);
        try (Statement run = connection.createStatement()) {
            run.setQueryTimeout(1);
            run.execute("select pg_sleep(60)");
            throw new AssertionError("not cancelled");
        } catch (SQLException error) {
            equal(error.getSQLState(), "57014");
        }
        System.out.println("errors");
    }

    static void bulk(Connection connection) throws Exception {
        try (Statement run = connection.createStatement()) {
            run.execute("create table bulk (id integer primary key, word varchar(20) not null)");
        }
        connection.setAutoCommit(false);
        try (PreparedStatement prepared = connection.prepareStatement("insert into bulk values (?, ?)")) {
            for (int i = 0; i < 1000; i++) {
                prepared.setInt(1, i);
                prepared.setString(2, "word " + i);
                prepared.addBatch();
            }
            equal(Arrays.stream(prepared.executeBatch()).map(Math::abs).allMatch(count -> count == 1 || count == 2), true);
        }
        connection.commit();
        connection.setAutoCommit(true);
        long copied = connection.unwrap(PGConnection.class).getCopyAPI().copyIn("copy bulk from stdin (format csv)", new StringReader("1000,a\n1001,b\n"));
        equal(copied, 2L);
        try (Statement run = connection.createStatement(ResultSet.TYPE_SCROLL_INSENSITIVE, ResultSet.CONCUR_UPDATABLE)) {
            ResultSet found = run.executeQuery("select id, word from bulk order by id");
            equal(found.last(), true);
            equal(found.getRow(), 1002);
            found.updateString("word", "changed");
            found.updateRow();
            found = run.executeQuery("select word from bulk where id = 1001");
            found.next();
            equal(found.getString(1), "changed");
        }
        System.out.println("bulk");
    }

    static List<String> names(ResultSet rows, String column) throws SQLException {
        List<String> names = new ArrayList<>();
        while (rows.next()) names.add(rows.getString(column));
        return names;
    }

    static void metadata(Connection connection) throws SQLException {
        try (Statement run = connection.createStatement()) {
            run.execute("create table child (id bigint generated always as identity, parent integer not null references bulk (id) on delete cascade,"
                + " price numeric(10, 2) default 1.5, constraint child_id primary key (id))");
            run.execute("create index child_by_parent on child (parent)");
            run.execute("create view seen as select id, word from bulk");
        }
        DatabaseMetaData data = connection.getMetaData();
        equal(names(data.getTables(null, "public", "%", new String[] {"TABLE"}), "TABLE_NAME"), List.of("bulk", "child", "everything"));
        equal(names(data.getTables(null, "public", "se%", new String[] {"VIEW"}), "TABLE_NAME"), List.of("seen"));
        equal(names(data.getSchemas(), "TABLE_SCHEM").contains("public"), true);
        equal(names(data.getCatalogs(), "TABLE_CAT").contains("postgres"), true);
        ResultSet columns = data.getColumns(null, "public", "child", null);
        columns.next();
        equal(columns.getString("IS_AUTOINCREMENT"), "YES");
        equal(columns.getInt("DATA_TYPE"), Types.BIGINT);
        columns.next();
        equal(columns.getString("IS_NULLABLE"), "NO");
        columns.next();
        equal(columns.getInt("COLUMN_SIZE") + " " + columns.getInt("DECIMAL_DIGITS") + " " + columns.getString("COLUMN_DEF"), "10 2 1.5");
        equal(names(data.getPrimaryKeys(null, "public", "child"), "COLUMN_NAME"), List.of("id"));
        ResultSet keys = data.getImportedKeys(null, "public", "child");
        keys.next();
        equal(keys.getString("PKTABLE_NAME") + " " + keys.getString("FKCOLUMN_NAME") + " " + keys.getShort("DELETE_RULE"),
            "bulk parent " + DatabaseMetaData.importedKeyCascade);
        equal(names(data.getExportedKeys(null, "public", "bulk"), "FKTABLE_NAME"), List.of("child"));
        equal(names(data.getIndexInfo(null, "public", "child", false, true), "INDEX_NAME"), List.of("child_id", "child_by_parent"));
        equal(names(data.getTypeInfo(), "TYPE_NAME").contains("timestamptz"), true);
        equal(names(data.getTablePrivileges(null, "public", "child"), "PRIVILEGE").contains("SELECT"), true);
        names(data.getFunctions(null, null, "abs"), "FUNCTION_NAME");
        names(data.getProcedures(null, null, "%"), "PROCEDURE_NAME");
        equal(names(data.getBestRowIdentifier(null, "public", "child", DatabaseMetaData.bestRowSession, true), "COLUMN_NAME"), List.of("id"));
        System.out.println("metadata");
    }

    public static void main(String[] arguments) throws Exception {
        where = "jdbc:postgresql://127.0.0.1:" + arguments[0] + "/postgres?user=postgres";
        try (Connection connection = DriverManager.getConnection(where)) {
            values(connection);
            errors(connection);
            bulk(connection);
            metadata(connection);
        }
    }
}
