//! How is a file opened? Options that both builds share.

/// How to open a file; all false opens nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenOptions {
    pub(crate) read: bool,
    pub(crate) write: bool,
    pub(crate) create: bool,
    pub(crate) create_new: bool,
    pub(crate) truncate: bool,
}

macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident)*) => {$(
        $(#[$doc])*
        pub const fn $name(mut self, yes: bool) -> OpenOptions {
            self.$name = yes;
            self
        }
    )*};
}

impl OpenOptions {
    /// Options that allow nothing yet.
    pub const fn new() -> OpenOptions {
        OpenOptions { read: false, write: false, create: false, create_new: false, truncate: false }
    }

    setters! {
        /// For reading.
        read
        /// For writing.
        write
        /// Make the file if it is not there (needs write).
        create
        /// Make the file, and fail with `AlreadyExists` if it is there (needs write).
        create_new
        /// Cut an existing file to length 0 (needs write).
        truncate
    }
}
