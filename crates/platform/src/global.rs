//! What is there once a process, or once a simulated machine? Lazily made shared state.

/// A static that is made when first used: once a process in a normal build, once a run in the lab,
/// so that a simulated crash leaves nothing behind.
///
/// For slow paths: each use is a check, in the lab a look-up.
pub struct Global<T: 'static> {
    make: fn() -> T,
    #[cfg(not(homenode_lab))]
    value: std::sync::OnceLock<T>,
}

impl<T: Send + Sync + 'static> Global<T> {
    /// A global that `make` makes.
    pub const fn new(make: fn() -> T) -> Global<T> {
        Global {
            make,
            #[cfg(not(homenode_lab))]
            value: std::sync::OnceLock::new(),
        }
    }

    /// The value.
    #[cfg(not(homenode_lab))]
    #[inline]
    pub fn get(&'static self) -> &'static T {
        self.value.get_or_init(self.make)
    }

    /// The value of this run.
    #[cfg(homenode_lab)]
    pub fn get(&'static self) -> &'static T {
        let key = std::ptr::from_ref(self).addr();
        crate::lab::run_local(key, self.make)
    }
}
