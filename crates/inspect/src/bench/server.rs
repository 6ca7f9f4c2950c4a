//! How is an installed server started on chosen nodes, with data of its own, and stopped again?

use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use homenode_memory::foreign::run_on;
use homenode_memory::{Placement, Policy, set_thread_policy};
use homenode_topology::{Topology, format_list};
use rustix::process::{Pid, Signal, kill_process};

use crate::InspectError;
use crate::client::{Address, Protocol, connect};

/// A kind of server that can be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// This project's.
    Homenode,
    /// PostgreSQL.
    Postgres,
    /// MariaDB.
    MariaDb,
}

impl Kind {
    /// Its name in options and results.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Homenode => "homenode",
            Kind::Postgres => "postgres",
            Kind::MariaDb => "mariadb",
        }
    }

    /// By its name.
    pub fn of(name: &str) -> Option<Kind> {
        [Kind::Homenode, Kind::Postgres, Kind::MariaDb].into_iter().find(|kind| kind.name() == name)
    }

    /// What it speaks.
    pub fn protocol(self) -> Protocol {
        if self == Kind::MariaDb { Protocol::MariaDb } else { Protocol::Postgres }
    }

    /// Statements whose answers say how durable a commit is, and what memory the server has.
    pub fn settings(self) -> &'static [&'static str] {
        match self {
            Kind::Homenode => &["server_version", "fsync", "synchronous_commit", "wal_sync_method", "full_page_writes"],
            Kind::Postgres => &[
                "server_version",
                "fsync",
                "synchronous_commit",
                "wal_sync_method",
                "full_page_writes",
                "shared_buffers",
                "huge_pages",
                "max_wal_size",
            ],
            Kind::MariaDb => &[
                "version",
                "innodb_flush_log_at_trx_commit",
                "sync_binlog",
                "log_bin",
                "innodb_doublewrite",
                "innodb_flush_method",
                "innodb_buffer_pool_size",
                "innodb_log_file_size",
                "performance_schema",
            ],
        }
    }

    /// The user that the server wants to be when this is root.
    fn user(self) -> Option<&'static str> {
        match self {
            Kind::Homenode => None,
            Kind::Postgres => Some("postgres"),
            Kind::MariaDb => Some("mysql"),
        }
    }
}

/// What a server is started with, besides its data.
#[derive(Clone, Debug)]
pub struct Start {
    /// Its program; `None`: the one that is installed.
    pub program: Option<PathBuf>,
    /// CPUs that it may run on; none: all.
    pub cpus: Vec<usize>,
    /// Where its memory comes from.
    pub policy: Policy,
    /// Its pool in bytes.
    pub pool_bytes: u64,
    /// Connections at a time.
    pub connections: u32,
    /// Further settings, name and value.
    pub settings: Vec<(String, String)>,
    /// Whether MariaDB is to record every wait (performance_schema with its wait instruments).
    pub records_waits: bool,
}

/// A server that runs.
#[derive(Debug)]
pub struct Running {
    child: Child,
    kind: Kind,
    /// Where it listens.
    pub address: Address,
    /// What the kernel made of the memory policy.
    pub placement: String,
}

impl Running {
    /// Number of its first process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Stops it in order; kills it if that takes a minute.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        if !matches!(self.child.try_wait(), Ok(None)) {
            return;
        }
        // PostgreSQL's fast shutdown; the others take SIGTERM for it.
        let signal = if self.kind == Kind::Postgres { Signal::INT } else { Signal::TERM };
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, signal);
        }
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(60) {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

fn refused(text: String) -> InspectError {
    InspectError::Refused(text)
}

/// Whether a kind is installed, and its program.
///
/// # Errors
/// What is missing.
pub fn program(kind: Kind) -> Result<PathBuf, String> {
    match kind {
        Kind::Homenode => std::env::current_exe().map_err(|error| format!("this program's own path: {error}")),
        Kind::Postgres => {
            // Debian keeps each version in a folder of its own, the newest is wanted.
            let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
            let mut found: Vec<(u32, PathBuf)> = versions
                .filter_map(|entry| {
                    Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin/postgres")))
                })
                .filter(|(_, path)| path.exists())
                .collect();
            found.sort();
            found
                .pop()
                .map(|(_, path)| path)
                .or_else(|| on_path("postgres"))
                .ok_or("PostgreSQL is not installed".into())
        }
        Kind::MariaDb => {
            let usual = PathBuf::from("/usr/sbin/mariadbd");
            if usual.exists() { Ok(usual) } else { on_path("mariadbd").ok_or("MariaDB is not installed".into()) }
        }
    }
}

fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// Makes an empty database in a new folder.
///
/// # Errors
/// [`InspectError::Refused`] with the last words of the program that makes it.
pub fn initialize(kind: Kind, program: &Path, folder: &Path) -> Result<(), InspectError> {
    fs::create_dir_all(folder).map_err(|error| InspectError::io(folder, error))?;
    let owner = owner(kind)?;
    if let Some((user, group)) = owner {
        std::os::unix::fs::chown(folder, Some(user), Some(group)).map_err(|error| InspectError::io(folder, error))?;
    }
    let data = folder.join("data");
    let mut command = match kind {
        Kind::Homenode => return Ok(()),
        Kind::Postgres => {
            let mut command = Command::new(program.with_file_name("initdb"));
            command.args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "-D"]).arg(&data);
            command
        }
        Kind::MariaDb => {
            let mut command = Command::new("mariadb-install-db");
            command.args(["--no-defaults", "--skip-test-db", "--auth-root-authentication-method=normal"]);
            command.arg(format!("--datadir={}", data.display()));
            command
        }
    };
    become_owner(&mut command, owner);
    let done = command.current_dir("/").stdin(Stdio::null()).output();
    let done = done.map_err(|error| refused(format!("{}: {error}", command.get_program().to_string_lossy())))?;
    if done.status.success() {
        return Ok(());
    }
    let said = [done.stderr, done.stdout].concat();
    Err(refused(format!("{} could not be made: {}", data.display(), last_line(&String::from_utf8_lossy(&said)))))
}

/// User and group for a server that doesn't run as root.
fn owner(kind: Kind) -> Result<Option<(u32, u32)>, InspectError> {
    let Some(name) = kind.user().filter(|_| rustix::process::geteuid().is_root()) else {
        return Ok(None);
    };
    let users = fs::read_to_string("/etc/passwd").map_err(|error| InspectError::io(Path::new("/etc/passwd"), error))?;
    let ids = find_user(&users, name);
    ids.map(Some).ok_or_else(|| refused(format!("there is no user {name}, and {} doesn't run as root", kind.name())))
}

/// User and group of a name in the text of `/etc/passwd`.
fn find_user(users: &str, name: &str) -> Option<(u32, u32)> {
    let mut fields = users.lines().map(|line| line.split(':')).find(|line| line.clone().next() == Some(name))?;
    let user = fields.nth(2)?.parse().ok()?;
    Some((user, fields.next()?.parse().ok()?))
}

fn become_owner(command: &mut Command, owner: Option<(u32, u32)>) {
    if let Some((user, group)) = owner {
        command.uid(user).gid(group);
    }
}

fn last_line(text: &str) -> &str {
    text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing").trim()
}

/// Starts a server on the data in a folder and waits until it answers.
///
/// # Errors
/// [`InspectError::Refused`] with the server's last words; a policy that the kernel refuses.
pub fn start(kind: Kind, folder: &Path, with: &Start, topology: &Topology) -> Result<Running, InspectError> {
    let program = match &with.program {
        Some(program) => program.clone(),
        None => program(kind).map_err(refused)?,
    };
    let port = free_port()?;
    let log = folder.join("log");
    let output = File::options().create(true).append(true).open(&log).map_err(|error| InspectError::io(&log, error))?;
    let errors = output.try_clone().map_err(|error| InspectError::io(&log, error))?;
    let mut command = command(kind, &program, folder, port, with);
    become_owner(&mut command, owner(kind)?);
    // In a group of its own: an interrupt at the terminal is for this program, which then stops its servers in order.
    command.current_dir("/").stdin(Stdio::null()).stdout(output).stderr(errors).process_group(0);
    let (child, placement) = placed(&mut command, with, topology)?;
    let (user, database) = match kind {
        Kind::MariaDb => ("root", ""),
        Kind::Homenode | Kind::Postgres => ("postgres", "postgres"),
    };
    let address = Address {
        protocol: kind.protocol(),
        host: Ipv4Addr::LOCALHOST.to_string(),
        port,
        user: user.to_owned(),
        password: String::new(),
        database: database.to_owned(),
    };
    let mut running = Running { child, kind, address, placement };
    wait_for(&mut running, &log)?;
    if kind == Kind::MariaDb {
        let mut session = connect(&running.address).map_err(|error| refused(error.to_string()))?;
        session.query("CREATE DATABASE IF NOT EXISTS bench").map_err(|error| refused(error.to_string()))?;
        running.address.database = "bench".to_owned();
    }
    Ok(running)
}

fn wait_for(running: &mut Running, log: &Path) -> Result<(), InspectError> {
    // A large pool is made present first, which takes a while.
    let begun = Instant::now();
    let failed = loop {
        let error = match connect(&running.address).and_then(|mut session| session.query("SELECT 1")) {
            Ok(_) => return Ok(()),
            Err(error) => error,
        };
        if !matches!(running.child.try_wait(), Ok(None)) {
            break "it ended".to_owned();
        }
        if begun.elapsed() > Duration::from_secs(180) {
            break error.to_string();
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    let said = fs::read(log).unwrap_or_default();
    let said = last_line(&String::from_utf8_lossy(&said)).to_owned();
    Err(refused(format!("{} did not start ({failed}): {said}", running.kind.name())))
}

/// Starts the command from a thread that has the CPUs and the memory policy: a child inherits both.
fn placed(command: &mut Command, with: &Start, topology: &Topology) -> Result<(Child, String), InspectError> {
    let start = || {
        if !with.cpus.is_empty() {
            run_on(&with.cpus).map_err(|error| refused(format!("CPUs {}: {error}", format_list(&with.cpus))))?;
        }
        let placement = set_thread_policy(&with.policy, topology)?;
        if let Placement::Refused(policy, refusal) = &placement {
            return Err(refused(format!("policy {policy}: {refusal}")));
        }
        let name = command.get_program().to_string_lossy().into_owned();
        let child = command.spawn().map_err(|error| refused(format!("{name}: {error}")))?;
        Ok((child, placement.to_string()))
    };
    let ended = std::thread::scope(|scope| scope.spawn(start).join());
    ended.unwrap_or_else(|_| Err(refused("the starting thread failed".to_owned())))
}

fn free_port() -> Result<u16, InspectError> {
    let probe = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
    probe.map(|address| address.port()).map_err(|error| refused(format!("no free port: {error}")))
}

fn command(kind: Kind, program: &Path, folder: &Path, port: u16, with: &Start) -> Command {
    const MIB: u64 = 1 << 20;
    let data = folder.join("data");
    let mut command = Command::new(program);
    match kind {
        Kind::Homenode => {
            command.args(["serve", "--listen", &format!("127.0.0.1:{port}"), "--data"]).arg(&data);
            command.args(["--pool", &format!("{}MiB", with.pool_bytes / MIB)]);
            command.args(["--max-connections", &with.connections.to_string()]);
            // Its pool has a policy of its own, which the process's doesn't reach.
            if let Policy::Bind(_) = &with.policy {
                command.args(["--pool-policy", &with.policy.to_string()]);
            }
            for (name, value) in &with.settings {
                command.args([format!("--{name}"), value.clone()]);
            }
        }
        Kind::Postgres => {
            command.arg("-D").arg(&data);
            let own = [
                ("listen_addresses", "127.0.0.1".to_owned()),
                ("port", port.to_string()),
                ("unix_socket_directories", String::new()),
                ("shared_buffers", format!("{}MB", with.pool_bytes / MIB)),
                ("max_connections", with.connections.to_string()),
                ("max_wal_size", "4GB".to_owned()),
            ];
            let further = with.settings.iter().map(|(name, value)| (name.as_str(), value.clone()));
            for (name, value) in own.into_iter().chain(further) {
                command.args(["-c", &format!("{name}={value}")]);
            }
        }
        Kind::MariaDb => {
            command.args(["--no-defaults", "--bind-address=127.0.0.1", "--skip-name-resolve", "--skip-log-bin"]);
            command.arg(format!("--datadir={}", data.display())).arg(format!("--port={port}"));
            command.arg(format!("--socket={}", folder.join("socket").display()));
            command.arg(format!("--pid-file={}", folder.join("pid").display()));
            command.arg(format!("--innodb-buffer-pool-size={}", with.pool_bytes));
            command.args(["--innodb-flush-log-at-trx-commit=1", "--innodb-log-file-size=2G"]);
            command.arg(format!("--max-connections={}", with.connections));
            // Each prepared statement of each connection counts; the default is for fewer.
            command.arg("--max-prepared-stmt-count=1048576");
            if with.records_waits {
                command.args(["--performance-schema=ON", "--performance-schema-instrument=wait/%=ON"]);
                command.arg("--performance-schema-consumer-events-waits-current=ON");
            }
            with.settings.iter().for_each(|(name, value)| {
                command.arg(format!("--{name}={value}"));
            });
        }
    }
    command
}

/// Copies a folder of data whose server is stopped, with its owner.
///
/// # Errors
/// [`InspectError::Refused`].
pub fn copy(from: &Path, to: &Path) -> Result<(), InspectError> {
    // cp keeps owners, modes, links and holes, and shares blocks where the file system can.
    let done = Command::new("cp").args(["-a", "--reflink=auto", "--"]).arg(from).arg(to).output();
    match done {
        Ok(done) if done.status.success() => Ok(()),
        Ok(done) => {
            Err(refused(format!("copying {}: {}", from.display(), last_line(&String::from_utf8_lossy(&done.stderr)))))
        }
        Err(error) => Err(refused(format!("cp: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(kind: Kind) -> Vec<String> {
        let start = Start {
            program: None,
            cpus: Vec::new(),
            policy: Policy::Bind(vec![0, 1]),
            pool_bytes: 256 << 20,
            connections: 70,
            settings: vec![("name".to_owned(), "value".to_owned())],
            records_waits: true,
        };
        let command = command(kind, Path::new("/p"), Path::new("/f"), 4711, &start);
        command.get_args().map(|word| word.to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn servers_are_started_alike() {
        let homenode = with(Kind::Homenode).join(" ");
        assert!(homenode.contains("--pool 256MiB") && homenode.contains("--pool-policy bind=0-1"), "{homenode}");
        assert!(homenode.ends_with("--name value"));
        let postgres = with(Kind::Postgres).join(" ");
        assert!(postgres.contains("shared_buffers=256MB") && postgres.ends_with("-c name=value"), "{postgres}");
        let mariadb = with(Kind::MariaDb).join(" ");
        assert!(mariadb.contains("--innodb-buffer-pool-size=268435456") && mariadb.contains("wait/%=ON"), "{mariadb}");
    }

    #[test]
    fn users_are_found_by_name() {
        let text = "root:x:0:0:root:/root:/bin/bash\npostgres:x:104:112:,,,:/var/lib/postgresql:/bin/bash\nbad:x\n";
        assert_eq!(find_user(text, "postgres"), Some((104, 112)));
        assert_eq!((find_user(text, "bad"), find_user(text, "nobody")), (None, None));
    }
}
