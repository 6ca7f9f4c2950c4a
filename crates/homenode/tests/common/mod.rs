//! How are the tests' servers started, stopped and killed? A server of its own for each test, in a temporary folder.
//!
//! The program under test is the one that Cargo built, or `HOMENODE_BINARY`. `common/postgres` gives PostgreSQL the same
//! command line, so that the tests' expectations can be tried against the original (see there).

// Each test program compiles this module and uses its own part of it.
#![allow(dead_code)]

pub mod random;
pub mod raw;

use std::fs::{self, File};
use std::net::TcpListener;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use postgres::error::SqlState;
use postgres::{Client, NoTls};

/// How long a server may take to answer its first query.
const START_LIMIT: Duration = Duration::from_secs(60);
/// A server that is still there after this has hung; killing it ends whatever waits for it.
const LIFE_LIMIT: Duration = Duration::from_secs(240);
/// The pool of a test's server: small, so that eviction takes part.
const POOL: &str = "64MB";

/// Whether long loops are to be short.
pub fn quick() -> bool {
    std::env::var_os("HOMENODE_TEST_QUICK").is_some_and(|value| value != "0")
}

/// Whether the program under test is PostgreSQL, whose files and faults the tests don't know.
pub fn is_postgres() -> bool {
    std::env::var_os("HOMENODE_TEST_POSTGRES").is_some()
}

/// `long`, or `short` where tests have to be quick.
pub fn rounds(long: usize, short: usize) -> usize {
    if quick() { short } else { long }
}

/// Waits until `condition` holds; panics with `what` after `limit`.
pub fn wait_until(what: &str, limit: Duration, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < limit, "waited {limit:?} in vain: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// A folder that goes when this value goes; `HOMENODE_TEST_KEEP` keeps those of tests that fail.
pub struct Folder(PathBuf);

impl Folder {
    /// Makes an empty one.
    pub fn new() -> Folder {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("homenode-test-{}-{number}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if thread::panicking() && std::env::var_os("HOMENODE_TEST_KEEP").is_some() {
            eprintln!("{} is kept", self.0.display());
            return;
        }
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What a program left behind.
#[derive(Debug)]
pub struct Done {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl Done {
    /// Itself, if the program succeeded.
    #[track_caller]
    pub fn ok(self) -> Done {
        assert!(self.status.success(), "{}\n--- stdout\n{}\n--- stderr\n{}", self.status, self.stdout, self.stderr);
        self
    }
}

/// Runs a program to its end, with `input` on its standard input.
pub fn run(command: &mut Command, input: &str) -> Done {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_owned();
    let writer = thread::spawn(move || {
        // A program may end before it has read everything.
        let _ = std::io::Write::write_all(&mut stdin, input.as_bytes());
    });
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    Done {
        status: output.status,
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// A port of loopback on which nobody listens. Below the range from which the kernel takes ports for clients, so that no
/// client takes it in between.
fn free_port() -> u16 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    loop {
        let number = NEXT.fetch_add(1, Ordering::Relaxed) * 7 + u64::from(std::process::id()) * 131;
        let port = 12_000 + (number % 20_000) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// The program under test.
pub fn binary() -> PathBuf {
    std::env::var_os("HOMENODE_BINARY").map_or_else(|| env!("CARGO_BIN_EXE_homenode").into(), PathBuf::from)
}

/// How to start a server.
#[derive(Clone, Default)]
pub struct Settings {
    /// Size of the pool as on the command line.
    pub pool: Option<String>,
    /// Further arguments of the command line.
    pub arguments: Vec<String>,
    /// A command that runs the server's command line, which comes behind it.
    pub wrapper: Vec<String>,
    /// Environment variables.
    pub environment: Vec<(String, String)>,
}

/// The process, shared with the thread that ends it should it hang.
struct Process {
    child: Mutex<Option<Child>>,
    ended: Condvar,
}

/// A running server; killed when this value goes.
pub struct Server {
    process: Arc<Process>,
    port: u16,
    data: PathBuf,
    output: PathBuf,
    settings: Settings,
    folder: Option<Arc<Folder>>,
}

/// A server that did not get as far as answering.
#[derive(Debug)]
pub struct Refusal {
    pub status: ExitStatus,
    pub output: String,
}

impl Server {
    /// Starts a server with an empty data folder.
    pub fn start() -> Server {
        Server::with(Settings::default())
    }

    /// Starts a server with an empty data folder and settings.
    pub fn with(settings: Settings) -> Server {
        let folder = Arc::new(Folder::new());
        let mut server = Server::open(&folder.path().join("data"), settings)
            .unwrap_or_else(|refusal| panic!("the server doesn't start: {}\n{}", refusal.status, refusal.output));
        server.folder = Some(folder);
        server
    }

    /// Starts a server in `data` and waits until it answers or ends.
    pub fn open(data: &Path, settings: Settings) -> Result<Server, Refusal> {
        let server = Server::launch(data, settings);
        let start = Instant::now();
        loop {
            if let Some(status) = server.status() {
                return Err(Refusal { status, output: server.output() });
            }
            if connect(server.port).is_ok_and(|mut client| client.simple_query("select 1").is_ok()) {
                return Ok(server);
            }
            assert!(start.elapsed() < START_LIMIT, "no answer after {START_LIMIT:?}\n{}", server.output());
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Starts a server in `data` and doesn't wait for it.
    pub fn launch(data: &Path, settings: Settings) -> Server {
        let port = free_port();
        let binary = binary();
        let output = data.with_extension("output");
        let sink = File::options().create(true).append(true).open(&output).unwrap();
        let line: Vec<_> = settings.wrapper.iter().map(Into::into).chain([binary.clone().into_os_string()]).collect();
        let child = Command::new(&line[0])
            .args(&line[1..])
            .arg("serve")
            .arg("--data")
            .arg(data)
            .args(["--listen", &format!("127.0.0.1:{port}")])
            .args(["--pool", settings.pool.as_deref().unwrap_or(POOL)])
            .args(&settings.arguments)
            .envs(settings.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(sink.try_clone().unwrap())
            .stderr(sink)
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", binary.display()));
        let process = Arc::new(Process { child: Mutex::new(Some(child)), ended: Condvar::new() });
        let watched = process.clone();
        thread::spawn(move || {
            let child = watched.child.lock().unwrap();
            let (mut child, wait) =
                watched.ended.wait_timeout_while(child, LIFE_LIMIT, |child| child.is_some()).unwrap();
            if let Some(child) = child.as_mut().filter(|_| wait.timed_out()) {
                eprintln!("the server on port {port} is killed: still there after {LIFE_LIMIT:?}");
                let _ = child.kill();
            }
        });
        Server { process, port, data: data.to_owned(), output, settings, folder: None }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The data folder.
    pub fn data(&self) -> &Path {
        &self.data
    }

    /// What it has written to its standard output and standard error, over all its lives in this folder.
    pub fn output(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.output).unwrap_or_default()).into_owned()
    }

    /// A new connection.
    #[track_caller]
    pub fn client(&self) -> Client {
        connect(self.port).unwrap_or_else(|error| panic!("cannot connect: {error:?}"))
    }

    /// A new connection for messages made by hand.
    #[track_caller]
    pub fn raw(&self) -> raw::Raw {
        raw::Raw::start(self.port)
    }

    /// The process's number; panics when it has ended.
    pub fn pid(&self) -> u32 {
        self.process.child.lock().unwrap().as_ref().expect("the server has ended").id()
    }

    /// How it ended, if it has.
    pub fn status(&self) -> Option<ExitStatus> {
        let mut child = self.process.child.lock().unwrap();
        let status = child.as_mut()?.try_wait().unwrap();
        if status.is_some() {
            child.take();
            self.process.ended.notify_all();
        }
        status
    }

    /// Panics unless it runs and answers a new client.
    #[track_caller]
    pub fn assert_alive(&self) {
        if let Some(status) = self.status() {
            panic!("the server has ended: {status}\n{}", self.output());
        }
        let row = self.client().query_one("select 40 + 2", &[]).expect("the server doesn't answer");
        assert_eq!(row.get::<_, i32>(0), 42);
    }

    /// `kill -9`.
    pub fn kill(&self) {
        let child = self.process.child.lock().unwrap().take();
        if let Some(mut child) = child {
            let _ = child.kill();
            child.wait().unwrap();
        }
        self.process.ended.notify_all();
    }

    /// Asks it to stop (SIGTERM) and doesn't wait.
    pub fn terminate(&self) {
        let pid = self.pid().to_string();
        run(Command::new("kill").args(["-TERM", &pid]), "").ok();
    }

    /// Waits until the process has ended by itself.
    #[track_caller]
    pub fn wait_end(&self, limit: Duration) -> ExitStatus {
        let mut status = None;
        wait_until("the server has to end", limit, || {
            status = self.status();
            status.is_some()
        });
        status.unwrap()
    }

    /// Stops it in good order.
    #[track_caller]
    pub fn stop(&self) {
        self.terminate();
        let status = self.wait_end(Duration::from_secs(30));
        assert!(status.success(), "stopped with {status}, signal {:?}\n{}", status.signal(), self.output());
    }

    /// Starts a server again in the same folder, after `kill` or `stop`.
    #[track_caller]
    pub fn restart(&mut self) {
        self.restart_with(self.settings.clone());
    }

    /// Starts a server again in the same folder with other settings.
    #[track_caller]
    pub fn restart_with(&mut self, settings: Settings) {
        if let Err(refusal) = self.try_restart(settings) {
            panic!("the server doesn't start again: {}\n{}", refusal.status, refusal.output);
        }
    }

    /// Starts a server again in the same folder, which it may refuse.
    pub fn try_restart(&mut self, settings: Settings) -> Result<(), Refusal> {
        self.kill();
        let folder = self.folder.clone();
        *self = Server::open(&self.data.clone(), settings)?;
        self.folder = folder;
        Ok(())
    }

    /// `psql` with arguments, on this server.
    pub fn psql(&self, arguments: &[&str], input: &str) -> Done {
        let mut command = Command::new("psql");
        command.args(["-X", "-h", "127.0.0.1", "-p", &self.port.to_string(), "-U", "postgres", "-d", "postgres"]);
        run(command.args(arguments).env("PGOPTIONS", "").env("LC_ALL", "C.UTF-8"), input)
    }

    /// Peak of its resident memory so far, in bytes.
    pub fn peak_memory_bytes(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        if thread::panicking() {
            let output = self.output();
            let lines: Vec<&str> = output.lines().collect();
            let tail = lines[lines.len().saturating_sub(60)..].join("\n");
            eprintln!("--- the server's output, its end\n{tail}\n---");
        }
    }
}

/// A new connection to a server that may be on its way out.
pub fn connect(port: u16) -> Result<Client, postgres::Error> {
    let url =
        format!("host=127.0.0.1 port={port} user=postgres dbname=postgres connect_timeout=10 application_name=test");
    Client::connect(&url, NoTls)
}

/// The SQLSTATE of an error that the server sent; panics on any other.
#[track_caller]
pub fn code(error: &postgres::Error) -> &SqlState {
    error.code().unwrap_or_else(|| panic!("not an error of the server: {error:?}"))
}

/// Panics unless `result` failed with SQLSTATE `expected`; returns the error.
#[track_caller]
pub fn fails<T>(result: Result<T, postgres::Error>, expected: &str) -> postgres::error::DbError {
    match result {
        Ok(_) => panic!("succeeded, {expected} expected"),
        Err(error) => {
            let error = error.as_db_error().unwrap_or_else(|| panic!("not an error of the server: {error:?}")).clone();
            assert_eq!(error.code().code(), expected, "{error:?}");
            error
        }
    }
}

/// The single value of a query that gives one.
#[track_caller]
pub fn one<T>(client: &mut Client, text: &str) -> T
where
    T: for<'a> postgres::types::FromSql<'a>,
{
    match client.query_one(text, &[]) {
        Ok(row) => row.get(0),
        Err(error) => panic!("{text}: {error:?}"),
    }
}
