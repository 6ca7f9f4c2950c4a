//! Who is let in? Passwords, encryption and rules, asked by an unmodified libpq (psql).

mod common;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use common::{Done, Folder, Server, Settings, run};

const RULES: &str = "
# TYPE    DATABASE  USER        ADDRESS       METHOD
hostnossl all       postgres    127.0.0.1/32  trust
hostssl   all       only_ssl    all           scram-sha-256
hostnossl all       only_ssl    all           reject
host      all       +staff      all           scram-sha-256
host      all       ann,limited all           scram-sha-256
";

struct Guarded {
    server: Server,
    folder: Arc<Folder>,
}

/// A server with rules, a certificate and some roles.
fn guarded() -> Guarded {
    let folder = Arc::new(Folder::new());
    let file = |name: &str| folder.path().join(name).display().to_string();
    fs::write(file("hba"), RULES).unwrap();
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]);
    openssl.args(["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-sha384"]);
    run(openssl.args(["-keyout", &file("key"), "-out", &file("cert")]), "").ok();
    let arguments = ["--hba", &file("hba"), "--tls-cert", &file("cert"), "--tls-key", &file("key")];
    let settings = Settings { arguments: arguments.map(str::to_owned).to_vec(), ..Settings::default() };
    let server = Server::open(&folder.path().join("data"), settings).unwrap();
    let roles = "
        create role staff;
        create user ann password 'secret';
        create user only_ssl password 'wörd' in role staff;
        create user limited password 'x' connection limit 0;
        create role nologin_member in role staff password 'secret';
        create user late password 'secret' valid until '2001-01-01' in role staff;
        create user without in role staff;
        create table things (id int primary key);
        insert into things select * from generate_series(1, 1000);
        grant select on things to ann, only_ssl;";
    server.psql(&["-q", "-v", "ON_ERROR_STOP=1"], roles).ok();
    Guarded { server, folder }
}

impl Guarded {
    /// psql as a user, with a password and more of a connection string.
    fn psql(&self, user: &str, password: &str, more: &str, command: &str) -> Done {
        let port = self.server.port();
        let target = format!("host=localhost hostaddr=127.0.0.1 port={port} dbname=postgres user={user} {more}");
        run(Command::new("psql").args(["-XAtq", "-c", command, &target]).env("PGPASSWORD", password), "")
    }

    #[track_caller]
    fn let_in(&self, user: &str, password: &str, more: &str) {
        let done = self.psql(user, password, more, "select current_user").ok();
        assert_eq!(done.stdout, format!("{user}\n"));
    }

    #[track_caller]
    fn refused(&self, user: &str, password: &str, more: &str, why: &str) {
        let done = self.psql(user, password, more, "select 1");
        assert!(!done.status.success() && done.stderr.contains(why), "{user}: {done:?}");
    }
}

#[test]
fn a_password_is_asked_and_has_to_be_right() {
    let guarded = guarded();
    guarded.let_in("ann", "secret", "sslmode=disable");
    let wrong = "password authentication failed for user";
    guarded.refused("ann", "Secret", "sslmode=disable", wrong);
    // From outside all of these look the same.
    for user in ["nologin_member", "late", "without"] {
        guarded.refused(user, "secret", "sslmode=disable", wrong);
    }
    guarded.refused(
        "nobody",
        "secret",
        "sslmode=disable",
        "no pg_hba.conf entry for host \"127.0.0.1\", user \"nobody\"",
    );
    guarded.refused("limited", "x", "sslmode=disable", "too many connections for role \"limited\"");
    // A changed password is asked from then on; a verifier made by the client works as well.
    let verifier = "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=";
    guarded.server.psql(&["-c", &format!("alter role ann password '{verifier}'")], "").ok();
    guarded.refused("ann", "secret", "sslmode=disable", wrong);
    guarded.let_in("ann", "pencil", "sslmode=disable");
}

#[test]
fn what_is_sent_is_encrypted_and_bound_to_the_certificate() {
    let guarded = guarded();
    let certificate = guarded.folder.path().join("cert").display().to_string();
    let verified = format!("sslmode=verify-full sslrootcert={certificate} channel_binding=require");
    guarded.let_in("only_ssl", "wörd", &verified);
    guarded.let_in("ann", "secret", "sslmode=require channel_binding=disable");
    guarded.refused("only_ssl", "wörd", "sslmode=disable", "pg_hba.conf rejects connection");
    guarded.refused("ann", "wrong", &verified, "password authentication failed");
    for version in ["TLSv1.2", "TLSv1.3"] {
        let more = format!("{verified} ssl_min_protocol_version={version} ssl_max_protocol_version={version}");
        guarded.let_in("ann", "secret", &more);
    }
    // Much in both directions, over many records.
    let table = guarded.psql(
        "ann",
        "secret",
        &verified,
        "select a.id, b.id from things a, things b where b.id <= 200 order by 1, 2",
    );
    assert_eq!(table.ok().stdout.lines().count(), 200_000);
    let large = format!("select length('{}')", "x".repeat(100_000));
    assert_eq!(guarded.psql("ann", "secret", &verified, &large).ok().stdout, "100000\n");
    guarded.server.assert_alive();
}

#[test]
fn roles_may_do_what_they_were_granted() {
    let guarded = guarded();
    let ask = |command: &str| guarded.psql("ann", "secret", "sslmode=disable", command);
    assert_eq!(ask("select count(*) from things").ok().stdout, "1000\n");
    for (command, why) in [
        ("insert into things values (0)", "permission denied for table things"),
        ("copy things from stdin", "permission denied for table things"),
        ("truncate things", "permission denied for table things"),
        ("drop table things", "must be owner of table things"),
        ("create table mine (id int)", "permission denied for schema public"),
        ("create role eve superuser", "must be superuser to create superusers"),
        ("alter role postgres password 'x'", "must be superuser"),
        ("grant insert on things to ann", "no privileges were granted"),
        ("select rolpassword from pg_authid", "permission denied"),
        ("alter system set homenode.pool_size = '1GB'", "must be superuser"),
        ("select homenode.resize_pool('1GB')", "must be superuser"),
        ("checkpoint", "must be superuser"),
        ("set role postgres", "permission denied to set role"),
    ] {
        let done = ask(command);
        assert!(done.stderr.contains(why), "{command}: {done:?}");
    }
    assert_eq!(ask("alter role ann password 'new'").ok().stderr, "");
    guarded.let_in("ann", "new", "sslmode=disable");
    // A prepared statement forgets what the role has lost.
    let mut client = postgres::Config::new();
    client.host("127.0.0.1").port(guarded.server.port()).user("ann").password("new").dbname("postgres");
    let mut client = client.connect(postgres::NoTls).unwrap();
    let counted = client.prepare("select count(*) from things").unwrap();
    assert_eq!(client.query_one(&counted, &[]).unwrap().get::<_, i64>(0), 1000);
    guarded.server.psql(&["-c", "revoke select on things from ann"], "").ok();
    assert_eq!(client.query_one(&counted, &[]).unwrap_err().code().unwrap().code(), "42501");
}

#[test]
fn roles_are_there_after_a_crash() {
    let mut guarded = guarded();
    guarded.server.kill();
    guarded.server.restart();
    guarded.let_in("ann", "secret", "sslmode=disable");
    let listed = guarded.server.psql(&["-At", "-c", "\\du"], "").ok().stdout;
    assert!(listed.contains("ann|") && listed.contains("limited|"), "{listed}");
    let granted = guarded.server.psql(&["-At", "-c", "\\dp things"], "").ok().stdout;
    assert!(granted.contains("ann=r/postgres"), "{granted}");
}

#[test]
fn nonsense_is_refused_at_the_start() {
    let folder = Folder::new();
    let start = |arguments: [&str; 4]| {
        let settings = Settings { arguments: arguments.map(str::to_owned).to_vec(), ..Settings::default() };
        let data = folder.path().join("data");
        let refusal = Server::open(&data, settings).err().expect("refused");
        assert!(!Path::new(&data).exists(), "nothing was touched");
        refusal.output
    };
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let rules = file("rules", "host all all all trust\nhost all all all ldap\n");
    assert!(start(["--hba", &rules, "--workers", "1"]).contains("line 2: there is no method \"ldap\""));
    assert!(start(["--hba", "/nowhere", "--workers", "1"]).contains("cannot read /nowhere"));
    let nothing = file("nothing", "");
    assert!(start(["--tls-cert", &nothing, "--tls-key", &nothing]).contains("there is no certificate in it"));
}
