//! The standard atomics' names; each operation is a point of the simulated machine.
//!
//! The orderings are taken and ignored: one OS thread runs everything, so memory is sequentially
//! consistent.

use super::machine::{self, Op, access, point, weak_fails};
use super::sim::Kind;
use std::panic::Location;
pub use std::sync::atomic::Ordering;
use std::sync::atomic::{self as native, Ordering::SeqCst};

/// A point; fences order nothing further on the simulated machine. A full one takes time.
pub fn fence(order: Ordering) {
    point(Op::Fence);
    if order == SeqCst {
        machine::charge(|sim| sim.fence());
    }
}

/// As std's; no point, as it concerns the compiler only.
pub fn compiler_fence(order: Ordering) {
    native::compiler_fence(order);
}

macro_rules! common {
    ($name:ident $(<$t:ident>)?, $std:ty, $value:ty) => {
        impl$(<$t>)? $name$(<$t>)? {
            /// As std's.
            pub const fn new(value: $value) -> Self {
                Self(<$std>::new(value))
            }
            /// As std's.
            ///
            /// # Safety
            /// As std's.
            pub const unsafe fn from_ptr<'a>(ptr: *mut $value) -> &'a Self {
                // SAFETY: the contract is std's, and Self is a transparent wrapper of std's type.
                unsafe { &*(ptr as *mut Self) }
            }
            /// As std's; no point.
            pub fn get_mut(&mut self) -> &mut $value {
                self.0.get_mut()
            }
            /// As std's; no point.
            pub const fn into_inner(self) -> $value {
                self.0.into_inner()
            }
            /// As std's; no point.
            pub const fn as_ptr(&self) -> *mut $value {
                self.0.as_ptr()
            }
            /// As std's.
            #[inline]
            #[track_caller]
            pub fn load(&self, _order: Ordering) -> $value {
                access(Op::Load, Kind::Load, self.0.as_ptr().addr(), Location::caller());
                self.0.load(SeqCst)
            }
            /// As std's.
            #[inline]
            #[track_caller]
            pub fn store(&self, value: $value, order: Ordering) {
                // As on x86: a sequentially consistent store is an exchange, the others leave through the store buffer.
                let kind = if order == SeqCst { Kind::Update } else { Kind::Store };
                access(Op::Store, kind, self.0.as_ptr().addr(), Location::caller());
                self.0.store(value, SeqCst);
            }
            /// As std's.
            #[inline]
            #[track_caller]
            pub fn swap(&self, value: $value, _order: Ordering) -> $value {
                access(Op::Update, Kind::Update, self.0.as_ptr().addr(), Location::caller());
                self.0.swap(value, SeqCst)
            }
            /// As std's.
            ///
            /// # Errors
            /// The present value, if it is not `current`.
            #[inline]
            #[track_caller]
            pub fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                _success: Ordering,
                _failure: Ordering,
            ) -> Result<$value, $value> {
                access(Op::Update, Kind::Update, self.0.as_ptr().addr(), Location::caller());
                self.0.compare_exchange(current, new, SeqCst, SeqCst)
            }
            /// As std's; fails now and then without reason, as the seed says.
            ///
            /// # Errors
            /// The present value.
            #[inline]
            #[track_caller]
            pub fn compare_exchange_weak(
                &self,
                current: $value,
                new: $value,
                _success: Ordering,
                _failure: Ordering,
            ) -> Result<$value, $value> {
                access(Op::Update, Kind::Update, self.0.as_ptr().addr(), Location::caller());
                if weak_fails() {
                    return Err(self.0.load(SeqCst));
                }
                self.0.compare_exchange(current, new, SeqCst, SeqCst)
            }
            /// As std's.
            ///
            /// # Errors
            /// The present value, when `f` returned `None` for it.
            #[track_caller]
            pub fn fetch_update(
                &self,
                success: Ordering,
                failure: Ordering,
                mut f: impl FnMut($value) -> Option<$value>,
            ) -> Result<$value, $value> {
                let mut now = self.load(failure);
                while let Some(next) = f(now) {
                    match self.compare_exchange_weak(now, next, success, failure) {
                        Ok(before) => return Ok(before),
                        Err(other) => now = other,
                    }
                }
                Err(now)
            }
        }
        impl$(<$t>)? From<$value> for $name$(<$t>)? {
            fn from(value: $value) -> Self {
                Self::new(value)
            }
        }
        impl$(<$t>)? std::fmt::Debug for $name$(<$t>)? {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

macro_rules! updates {
    ($name:ident, $value:ty, $($method:ident)*) => {
        impl $name {
            $(
                /// As std's.
                #[inline]
                #[track_caller]
                pub fn $method(&self, value: $value, _order: Ordering) -> $value {
                    access(Op::Update, Kind::Update, self.0.as_ptr().addr(), Location::caller());
                    self.0.$method(value, SeqCst)
                }
            )*
        }
    };
}

macro_rules! integers {
    ($($name:ident $value:ty;)*) => {$(
        #[doc = concat!("`", stringify!($name), "` of the simulated machine.")]
        #[derive(Default)]
        #[repr(transparent)]
        pub struct $name(native::$name);
        common!($name, native::$name, $value);
        updates!($name, $value, fetch_add fetch_sub fetch_and fetch_nand fetch_or fetch_xor fetch_max fetch_min);
    )*};
}

integers! {
    AtomicU8 u8;
    AtomicU16 u16;
    AtomicU32 u32;
    AtomicU64 u64;
    AtomicUsize usize;
    AtomicI8 i8;
    AtomicI16 i16;
    AtomicI32 i32;
    AtomicI64 i64;
    AtomicIsize isize;
}

/// `AtomicBool` of the simulated machine.
#[derive(Default)]
#[repr(transparent)]
pub struct AtomicBool(native::AtomicBool);
common!(AtomicBool, native::AtomicBool, bool);
updates!(AtomicBool, bool, fetch_and fetch_nand fetch_or fetch_xor);

/// `AtomicPtr` of the simulated machine.
#[repr(transparent)]
pub struct AtomicPtr<T>(native::AtomicPtr<T>);
common!(AtomicPtr<T>, native::AtomicPtr<T>, *mut T);

impl<T> Default for AtomicPtr<T> {
    fn default() -> Self {
        Self::new(std::ptr::null_mut())
    }
}
