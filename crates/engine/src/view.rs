//! Which views are there? Their definitions come and go like those of tables; what their queries mean is the SQL layer's business.

use crate::catalog::{Object, ViewDefinition};
use crate::error::Result;
use crate::session::Session;

impl Session {
    /// Waits until nobody else changes definitions, and keeps others from it until the transaction ends: what is looked up now stays.
    ///
    /// # Errors
    /// 40P01, 55P03, 57014; 25006.
    pub fn lock_definitions(&mut self) -> Result<()> {
        self.pending().map(|_| ())
    }

    /// Creates a view, or replaces the one with the same number (0: a new one).
    ///
    /// # Errors
    /// 42P07.
    pub fn put_view(&mut self, mut view: ViewDefinition) -> Result<()> {
        self.pending()?;
        let is_new = view.oid == 0;
        if is_new {
            self.check_free_name(&view.schema, &view.name)?;
            view.oid = self.db.catalog.new_oid();
        }
        let oid = view.oid;
        let before = self.definitions().view_by_oid(oid).cloned();
        if before.is_some_and(|before| before.name != view.name) {
            self.check_free_name(&view.schema, &view.name)?;
        }
        self.put_object(Object::View(view))?;
        if is_new { self.own(oid) } else { Ok(()) }
    }

    /// Drops a view.
    ///
    /// # Errors
    /// As [`Session::lock_definitions`].
    pub fn drop_view(&mut self, oid: u32) -> Result<()> {
        self.pending()?;
        self.remove_object(oid)
    }
}
