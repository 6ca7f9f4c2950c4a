//! What do all workers share? The database, the open sessions, and whether the server is stopping.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::backend::Backend;
use crate::registry::Registry;

pub(crate) struct Shared<B> {
    pub(crate) backend: B,
    pub(crate) registry: Arc<Registry>,
    stopping: AtomicBool,
}

impl<B: Backend> Shared<B> {
    pub(crate) fn new(backend: B, max_connections: usize) -> Shared<B> {
        Shared { backend, registry: Registry::new(max_connections), stopping: AtomicBool::new(false) }
    }

    /// A line that is written once in the server's life, so that asking costs every worker a cached read.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.backend.stop_sessions();
    }
}
