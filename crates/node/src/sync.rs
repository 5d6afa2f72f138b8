//! What threads share is made of these: the locks, atomics and threads of std, or, with the feature
//! `interleavings`, those of `shuttle`, which runs one thread at a time and chooses at each of their operations who
//! goes on. So the tests in `interleavings` run the production code.
//!
//! Counters that nobody decides by stay with std: a checker has better places to switch.

#[cfg(not(feature = "interleavings"))]
mod chosen {
    use std::panic::Location;
    use std::sync::{LockResult, TryLockError};

    pub(crate) use std::sync::{Condvar, MutexGuard, atomic};
    pub(crate) use std::thread;
    pub(crate) use tokio::sync::Notify;

    use crate::profile::waits;

    /// std's. A profile of locks shows who waited for it, and where.
    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(std::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) const fn new(value: T) -> Self {
            Self(std::sync::Mutex::new(value))
        }

        #[track_caller]
        pub(crate) fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
            match self.0.try_lock() {
                Ok(guard) => Ok(guard),
                Err(TryLockError::Poisoned(poisoned)) => Err(poisoned),
                Err(TryLockError::WouldBlock) => {
                    waits::lock(std::any::type_name::<T>(), Location::caller(), || self.0.lock())
                }
            }
        }
    }
}

#[cfg(feature = "interleavings")]
mod chosen {
    pub(crate) use shuttle::sync::{Condvar, Mutex, MutexGuard, atomic};
    pub(crate) use shuttle::thread;

    /// tokio's, which the checker takes for one step (tokio has its own tests of what is inside), with a moment
    /// before it at which others may go on.
    #[derive(Debug, Default)]
    pub(crate) struct Notify {
        notify: tokio::sync::Notify,
        moment: atomic::AtomicBool,
    }

    impl Notify {
        pub(crate) fn new() -> Self {
            Self::default()
        }

        pub(crate) fn notify_one(&self) {
            self.moment.load(atomic::Ordering::SeqCst);
            self.notify.notify_one();
        }

        pub(crate) async fn notified(&self) {
            self.moment.load(atomic::Ordering::SeqCst);
            self.notify.notified().await;
        }
    }
}

pub(crate) use chosen::*;
