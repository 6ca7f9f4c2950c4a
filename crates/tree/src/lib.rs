//! Where is the key? B+tree over pages.
