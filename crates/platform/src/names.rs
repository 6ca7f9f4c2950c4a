//! What lies where? Names of shared structures and their fields, for the lab's report of cache lines.

/// A field of a named structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its path within the structure.
    pub name: &'static str,
    /// Bytes from the structure's start.
    pub offset: usize,
}

/// The named fields of a structure: `fields!(Frame { read.latch, hot.rec_lsn })`.
#[macro_export]
macro_rules! fields {
    ($type:ty { $($($part:tt).+),+ $(,)? }) => {
        const { &[$($crate::Field { name: stringify!($($part).+), offset: std::mem::offset_of!($type, $($part).+) }),+] }
    };
}

/// Says that `count` structures of type `T` lie from `first` on. Nothing happens in a normal build.
#[inline(always)]
pub fn name_memory<T>(first: *const T, count: usize, name: &'static str, fields: &'static [Field]) {
    #[cfg(homenode_lab)]
    crate::lab::measure::name(crate::lab::sim::Named {
        start: first.addr(),
        bytes: count * size_of::<T>(),
        name,
        stride: size_of::<T>(),
        fields,
    });
    #[cfg(not(homenode_lab))]
    let _ = (first, count, name, fields);
}
