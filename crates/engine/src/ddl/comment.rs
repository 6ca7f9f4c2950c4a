//! What is said about an object? COMMENT ON: one entry of the catalog for all comments on an object and its columns.

use crate::catalog::{Comment, CommentsDefinition, Object};
use crate::error::Result;
use crate::session::Session;

impl Session {
    /// Sets the comment on an object (column 0) or one of its columns; `None` takes it away. `class` is PostgreSQL's number of the
    /// catalog that the object is in.
    ///
    /// # Errors
    /// 40P01, 55P03, 57014; 25006.
    pub fn comment(&mut self, class: u32, object: u32, column: u32, text: Option<String>) -> Result<()> {
        self.change_comments(object, |comments| {
            comments.retain(|comment| (comment.class, comment.column) != (class, column));
            comments.extend(text.map(|text| Comment { class, column, text }));
        })
    }

    /// Forgets what was said of an object that goes.
    pub(crate) fn forget_comments(&mut self, object: u32) -> Result<()> {
        self.change_comments(object, Vec::clear)
    }

    /// Forgets what was said of a primary key that goes.
    ///
    /// # Errors
    /// As [`Session::comment`].
    pub fn forget_key_comments(&mut self, key: u32) -> Result<()> {
        self.forget_comments(key)
    }

    /// Forgets what was said of a column that goes.
    pub(crate) fn forget_column_comments(&mut self, object: u32, column: u32) -> Result<()> {
        self.change_comments(object, |comments| comments.retain(|comment| comment.column != column))
    }

    fn change_comments(&mut self, object: u32, change: impl FnOnce(&mut Vec<Comment>)) -> Result<()> {
        self.pending()?;
        let before = self.definitions().comments(object).cloned();
        let mut comments = before.as_ref().map_or_else(Vec::new, |before| before.comments.clone());
        change(&mut comments);
        match before {
            None if comments.is_empty() => Ok(()),
            Some(before) if comments.is_empty() => self.remove_object(before.oid),
            Some(before) => self.put_object(Object::Comments(CommentsDefinition { oid: before.oid, object, comments })),
            None => {
                let oid = self.new_oid();
                self.put_object(Object::Comments(CommentsDefinition { oid, object, comments }))
            }
        }
    }
}
