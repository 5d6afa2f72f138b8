#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| kvorum_storage::data_dir::fuzzing::notes(data));
