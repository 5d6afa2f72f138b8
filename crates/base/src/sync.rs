//! What threads share is made of these: the locks, atomics and threads of std, or, with the feature `interleavings`,
//! those of `shuttle`, which runs one thread at a time and chooses at each of their operations which goes on. So the
//! tests in `interleavings` run the production code.
//!
//! Counters that decide nothing stay with std: a checker has better places to switch.

#[cfg(not(feature = "interleavings"))]
mod chosen {
    use std::panic::Location;
    use std::sync::{LockResult, TryLockError};

    pub use std::sync::{Condvar, MutexGuard, atomic};
    pub use std::thread;
    pub use tokio::sync::Notify;

    use crate::waits;

    /// std's. A profile of locks shows which thread waited for it, and where.
    #[derive(Debug, Default)]
    pub struct Mutex<T>(std::sync::Mutex<T>);

    impl<T> Mutex<T> {
        /// As std's.
        pub const fn new(value: T) -> Self {
            Self(std::sync::Mutex::new(value))
        }

        /// As std's, noted where a thread waits and a profile is being taken.
        ///
        /// # Errors
        /// As std's, where a thread that held it has panicked.
        #[track_caller]
        pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
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
    pub use shuttle::sync::{Condvar, Mutex, MutexGuard, atomic};
    pub use shuttle::thread;

    /// tokio's, which the checker takes for one step (tokio has its own tests of what is inside), with a moment
    /// before it at which others may go on.
    #[derive(Debug, Default)]
    pub struct Notify {
        notify: tokio::sync::Notify,
        moment: atomic::AtomicBool,
    }

    impl Notify {
        /// As tokio's.
        pub fn new() -> Self {
            Self::default()
        }

        /// As tokio's.
        pub fn notify_one(&self) {
            self.moment.load(atomic::Ordering::SeqCst);
            self.notify.notify_one();
        }

        /// As tokio's.
        pub async fn notified(&self) {
            self.moment.load(atomic::Ordering::SeqCst);
            self.notify.notified().await;
        }
    }
}

pub use chosen::*;
