//! What is a JSON document, and how are two ordered?
//!
//! `json` keeps its text. `jsonb` is kept as its canonical text, the one that its output function writes: pairs ordered by
//! the length of their keys and then by bytes, each key once (the last one wins), numbers as `numeric` writes them. What is stored
//! is what is sent; a part of a canonical text is canonical, so operators cut parts out ([`members`]) and only what changes or
//! compares a document makes a tree of it ([`parse`]).
//!
//! The reader is our own: PostgreSQL's messages say what was expected and where, numbers must go into `numeric` without a
//! detour by `double precision`, and the text of a `json`'s parts has to survive. Nesting beyond [`MAX_DEPTH`] is refused (`54001`): trees are
//! walked by recursion on a task's small stack.

mod edit;
mod lex;
mod order;
mod path;
mod tree;
mod value;
mod write;

pub use edit::{concat, contains, delete_index, delete_keys, delete_path, insert, set, strip_nulls};
pub use lex::{MAX_DEPTH, check};
pub use order::write_key;
pub use path::{Kind, Members, at_path, element, field, kind, members, scalar_text};
pub use tree::{Json, parse};
pub use value::append_value;
pub use write::{append_string, pretty};

/// The canonical text of a document. Errors as [`parse`].
pub fn canonical(text: &str) -> crate::Result<String> {
    Ok(parse(text)?.to_string())
}

#[cfg(test)]
mod tests;
