//! How is memory freed without being used again by whoever frees it? On a thread of its own.

use std::thread;

/// Drops `value` on a thread that ends with it, and waits for that.
///
/// glibc's malloc keeps small pieces that a thread frees for that thread's next allocations, whichever node they are on (its
/// `tcache`; malloc/malloc.c); when a thread ends they go back to where they came from. So who moves to another node drops in this
/// way what it has left behind. Where no thread can be had the value is dropped here.
pub fn drop_elsewhere<T: Send>(value: T) {
    let mut value = Some(value);
    thread::scope(|scope| {
        let dropped = thread::Builder::new().name("homenode-drop".into()).spawn_scoped(scope, || drop(value.take()));
        // A panic of the value's is reported there; it has no other consequence than memory that stays.
        let _ = dropped.map(|thread| thread.join());
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Tells<'a>(&'a std::sync::Mutex<Option<thread::ThreadId>>);

    impl Drop for Tells<'_> {
        fn drop(&mut self) {
            *self.0.lock().unwrap() = Some(thread::current().id());
        }
    }

    #[test]
    fn it_is_dropped_by_another_thread_before_the_call_returns() {
        let by = std::sync::Mutex::new(None);
        drop_elsewhere(Tells(&by));
        let by = by.lock().unwrap().expect("dropped");
        assert_ne!(by, thread::current().id());
    }
}
