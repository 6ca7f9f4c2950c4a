//! What do all workers share? The database, which also knows whether the server is stopping, the open sessions, and who is let in.

use std::sync::Arc;

use crate::auth::Access;
use crate::backend::Backend;
use crate::registry::Registry;

pub(crate) struct Shared<B> {
    pub(crate) backend: B,
    pub(crate) registry: Arc<Registry>,
    /// Address space of a task's stack.
    pub(crate) stack_bytes: usize,
    pub(crate) access: Access,
}

impl<B: Backend> Shared<B> {
    pub(crate) fn new(backend: B, max_connections: usize, stack_bytes: usize, access: Access) -> Shared<B> {
        Shared { backend, registry: Registry::new(max_connections), stack_bytes, access }
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.backend.is_stopping()
    }

    pub(crate) fn stop(&self) {
        self.backend.stop_sessions();
    }
}
