//! What the cache answers is what the engine would have answered at some moment of the question.

use std::sync::Arc;

use bytes::Bytes;
use kvorum_base::interleavings::check;
use kvorum_core::Key;
use shuttle::sync::Mutex;
use shuttle::sync::atomic::{AtomicU8, Ordering};
use shuttle::thread;

use crate::record_cache::{Lookup, RecordCache};

const COMMITS: u8 = 2;

/// The cache before an engine of two keys, which a commit changes together.
struct Engine {
    cache: RecordCache,
    keys: [Key; 2],
    values: Mutex<[u8; 2]>,
    acknowledged: AtomicU8,
}

impl Engine {
    fn commit(&self, value: u8) {
        self.cache.begin_changes(self.keys.iter());
        *self.values.lock().unwrap() = [value; 2];
        self.cache.end_changes(self.keys.iter());
        self.acknowledged.store(value, Ordering::SeqCst);
    }

    /// As `RocksStore::get` does.
    fn get(&self, index: usize) -> u8 {
        let key = &self.keys[index];
        match self.cache.get(key) {
            Lookup::Hit(record) => record[0],
            Lookup::Miss(moment) => {
                let value = self.values.lock().unwrap()[index];
                self.cache.keep(key, &Bytes::copy_from_slice(&[value]), moment);
                value
            }
        }
    }
}

/// Without room, with one set, and with many, so that each key has its own.
#[test]
fn a_read_is_never_older_than_what_was_acknowledged_or_read_before() {
    for bytes_max in [0, 700, 1 << 16] {
        run(bytes_max);
    }
}

fn run(bytes_max: usize) {
    check(2, move || {
        let key = |name: &'static str| Key::new(name.into()).unwrap();
        let engine = Arc::new(Engine {
            cache: RecordCache::new(bytes_max),
            keys: [key("a"), key("b")],
            values: Mutex::new([0; 2]),
            acknowledged: AtomicU8::new(0),
        });
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let engine = Arc::clone(&engine);
                thread::spawn(move || {
                    let mut least = 0;
                    for _ in 0..3 {
                        least = least.max(engine.acknowledged.load(Ordering::SeqCst));
                        let value = engine.get(0);
                        assert!(value >= least, "{value} after {least}");
                        least = value;
                    }
                })
            })
            .collect();
        (1..=COMMITS).for_each(|value| engine.commit(value));
        assert_eq!((engine.get(0), engine.get(1)), (COMMITS, COMMITS));
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        assert_eq!((engine.get(0), engine.get(1)), (COMMITS, COMMITS));
        assert_eq!(engine.cache.used_bytes(), engine.cache.counted_bytes());
    });
}
