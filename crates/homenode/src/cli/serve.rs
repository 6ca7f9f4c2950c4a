//! `homenode serve`: the server's life from its options to a clean data folder.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::ArgAction;
use homenode_engine::{Database, SavedSettings, size};
use homenode_memory::Policy;
use homenode_platform::thread;
use homenode_server::{Certificate, Config, Rules, Server, ServerError, SqlBackend, spread_workers};

use super::{limits, logging, process};

/// The pool takes this part of the memory when nothing else is said.
const POOL_SHARE: u64 = 4;
const POOL_BYTES_LEAST: usize = 64 << 20;

/// Between two looks for tables that have changed much since they were analyzed.
const ANALYZE_PAUSE: Duration = Duration::from_secs(10);

/// Serve a data folder to PostgreSQL clients
///
/// Example: homenode serve --data /var/lib/homenode --pool 8GiB --listen 127.0.0.1:5433
///
/// Clients connect to the database "postgres". From this machine any user name is let in without a password; from elsewhere a
/// role has to be there (CREATE USER ... PASSWORD ...) and its password is asked. Rules in the format of pg_hba.conf change that.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Data folder; made if there is none
    #[arg(long, value_name = "DIR", default_value = "./homenode-data")]
    data: PathBuf,
    /// Address and port to listen on
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:5433")]
    listen: SocketAddr,
    /// Memory for pages, with its unit, for example 512MiB (default: a quarter of the memory)
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pool: Option<usize>,
    /// Sessions at a time
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    max_connections: u32,
    /// Worker threads (default: one for each CPU)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    workers: Option<u32>,
    /// On which nodes the pool's pages lie: interleave, weighted, local, default, bind=NODES or preferred=NODE
    /// (default: interleave)
    #[arg(long, value_name = "POLICY")]
    pool_policy: Option<Policy>,
    /// Nodes whose memory is the pool's second tier, where pages cool down before they are evicted, for example 3 or 2-3; auto
    /// means the nodes without CPUs (default: there is none)
    #[arg(long, value_name = "NODES", value_parser = parse_far_nodes)]
    far_nodes: Option<FarNodes>,
    /// Memory for the second tier (default: three quarters of what its nodes can give)
    #[arg(long, value_name = "SIZE", value_parser = size::parse, requires = "far_nodes")]
    far_size: Option<usize>,
    /// Whether memory, workers and sessions are placed by node; off takes the machine as one node
    #[arg(long, value_name = "on|off", default_value = "on", action = ArgAction::Set, value_parser = parse_switch)]
    numa: bool,
    /// Whether the pool's memory is made present at the start (default: where it is placed by node)
    #[arg(long, value_name = "on|off", action = ArgAction::Set, value_parser = parse_switch)]
    prefault: Option<bool>,
    /// Whether the pool asks for huge pages
    #[arg(long, value_name = "on|off", default_value = "on", action = ArgAction::Set, value_parser = parse_switch)]
    huge_pages: bool,
    /// Who is let in from where and how: rules in the format of pg_hba.conf, with the methods trust, reject and scram-sha-256
    #[arg(long, value_name = "FILE", conflicts_with = "allow_remote_trust")]
    hba: Option<PathBuf>,
    /// Let in everybody who can reach the server, without a password
    #[arg(long)]
    allow_remote_trust: bool,
    /// The server's certificate in PEM, with those that vouch for it: clients may encrypt then
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The certificate's key in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// How log lines look
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    log_format: logging::Format,
    /// What is logged: error, warn, info, debug or a filter by module
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    log_level: String,
}

/// Which nodes are far.
#[derive(Clone, Debug)]
enum FarNodes {
    /// Those without CPUs.
    Auto,
    These(Vec<usize>),
}

fn parse_far_nodes(text: &str) -> Result<FarNodes, String> {
    match (text, homenode_topology::parse_list(text)) {
        ("auto", _) => Ok(FarNodes::Auto),
        (_, Some(nodes)) if !nodes.is_empty() => Ok(FarNodes::These(nodes)),
        _ => Err("auto, or numbers and ranges of nodes are wanted".into()),
    }
}

/// The nodes of the second tier.
fn far_nodes(options: &Options) -> Result<Vec<usize>, String> {
    match &options.far_nodes {
        None => Ok(Vec::new()),
        Some(_) if !options.numa => Err("--far-nodes needs placement by node, which --numa off switches off".into()),
        Some(FarNodes::These(nodes)) => Ok(nodes.clone()),
        Some(FarNodes::Auto) => {
            let topology = homenode_topology::Topology::discover();
            let nodes = topology.memory_nodes().into_iter().filter(|node| node.cpus.is_empty()).map(|node| node.id);
            let nodes: Vec<usize> = nodes.collect();
            match nodes.is_empty() {
                true => Err("--far-nodes auto: every node with memory has CPUs".into()),
                false => Ok(nodes),
            }
        }
    }
}

fn parse_switch(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("on or off is wanted".into()),
    }
}

fn default_pool_bytes() -> usize {
    let share = limits::memory_bytes().map_or(0, |bytes| bytes / POOL_SHARE);
    usize::try_from(share).unwrap_or(usize::MAX).max(POOL_BYTES_LEAST)
}

pub(crate) fn run(options: &Options) -> Result<(), String> {
    logging::start(options.log_format, &options.log_level)?;
    process::report_panics();
    let workers = options.workers.map_or_else(thread::available_cpus, |workers| workers as usize);
    let config = Config {
        listen: options.listen,
        workers,
        max_connections: options.max_connections as usize,
        // What is refused anyway is refused before a data folder is touched.
        rules: rules(options)?,
        certificate: certificate(options)?,
        ..Config::default()
    };
    if let Some(files) = limits::raise_open_files() {
        let wanted = u64::from(options.max_connections) + 64;
        if files < wanted {
            tracing::warn!(files, wanted, "the limit of open files is below --max-connections");
        }
    }
    let pool_bytes = options.pool.unwrap_or_else(default_pool_bytes);
    let database = open(options, workers, pool_bytes)?;
    let served = serve(options, config, &database);
    if let Err(ServerError::StillBusy(sessions)) = served {
        // Threads of theirs may still write: the folder stays as after a crash.
        tracing::error!(sessions, "sessions did not end in time; the next start recovers");
        std::process::exit(1);
    }
    database.close().map_err(|error| format!("cannot close {}: {}", options.data.display(), error.message))?;
    served.map_err(|error| error.to_string())?;
    tracing::info!("stopped; the data folder is clean");
    Ok(())
}

fn rules(options: &Options) -> Result<Rules, String> {
    let Some(path) = &options.hba else { return Ok(Rules::usual(options.allow_remote_trust)) };
    let text = std::fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    Rules::parse(&text).map_err(|error| format!("{}, {error}", path.display()))
}

fn certificate(options: &Options) -> Result<Option<Certificate>, String> {
    match (&options.tls_cert, &options.tls_key) {
        (Some(chain), Some(key)) => Certificate::read(chain, key).map(Some).map_err(|error| error.to_string()),
        _ => Ok(None),
    }
}

fn open(options: &Options, workers: usize, pool_bytes: usize) -> Result<Database, String> {
    // The command line counts more than what ALTER SYSTEM has set.
    let mut saved = SavedSettings::read(&options.data);
    saved.pool_bytes = saved.pool_bytes.filter(|_| options.pool.is_none());
    saved.pool_policy = saved.pool_policy.filter(|_| options.pool_policy.is_none() && options.numa);
    let engine = homenode_engine::Options {
        saved,
        pool_bytes,
        lanes: workers,
        // A session that is still closing may overlap with the next one.
        sessions_max: options.max_connections as usize + workers + 16,
        pool_policy: options.pool_policy.clone().unwrap_or(Policy::Interleave),
        far_nodes: far_nodes(options)?,
        far_bytes: options.far_size.unwrap_or(0),
        numa: options.numa,
        prefault: options.prefault,
        huge_pages: options.huge_pages,
        ..homenode_engine::Options::default()
    };
    let database = Database::open_with(&options.data, engine)
        .map_err(|error| format!("cannot open {}: {}", options.data.display(), error.message))?;
    for why in database.refused_settings() {
        tracing::warn!(%why, "a setting of ALTER SYSTEM is left aside");
    }
    Ok(database)
}

fn serve(options: &Options, mut config: Config, database: &Database) -> Result<(), ServerError> {
    config.worker_homes = spread_workers(database.planned_topology(), config.workers);
    let (workers, rules, encrypted) = (config.workers, config.rules.clone(), config.certificate.is_some());
    let server = Server::bind(config, SqlBackend::new(database.clone()))?;
    let handle = server.handle();
    process::on_signals(move || handle.stop()).map_err(ServerError::Worker)?;
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        address = %server.address(),
        data = %options.data.display(),
        pool = size::show(database.pool().shape().0),
        workers,
        "serving"
    );
    match (&options.hba, options.listen.ip().is_loopback()) {
        (Some(path), _) => tracing::info!(rules = %path.display(), encrypted, "the database is \"postgres\""),
        (None, true) => {
            tracing::info!(
                "any user name is let in from this machine without a password; the database is \"postgres\""
            );
        }
        (None, false) => tracing::info!(
            encrypted,
            "any user name is let in from this machine without a password, from elsewhere roles with theirs; \
             the database is \"postgres\""
        ),
    }
    if !options.listen.ip().is_loopback() && rules.trust_remote() {
        tracing::warn!("users are let in without a password from beyond this machine");
    } else if !options.listen.ip().is_loopback() && !encrypted {
        tracing::warn!("there is no certificate: what is sent over the network can be read there (--tls-cert)");
    }
    let upkeep = Upkeep::start(database);
    let ended = server.run();
    upkeep.stop();
    ended
}

/// The thread that analyzes tables that have changed.
struct Upkeep {
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<()>,
}

impl Upkeep {
    fn start(database: &Database) -> Upkeep {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, database) = (stop.clone(), database.clone());
        let thread = std::thread::spawn(move || {
            let is_stopped = || stopped.load(Ordering::SeqCst) || database.is_stopping();
            while !is_stopped() {
                std::thread::park_timeout(ANALYZE_PAUSE);
                match homenode_sql::analyze_due(&database, &is_stopped) {
                    Ok(0) => {}
                    Ok(tables) => tracing::debug!(tables, "analyzed"),
                    Err(error) => tracing::warn!(error = %error.message, "tables could not be analyzed"),
                }
            }
        });
        Upkeep { stop, thread }
    }

    fn stop(self) {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.thread().unpark();
        if self.thread.join().is_err() {
            tracing::error!("the thread that analyzes tables has panicked");
        }
    }
}
