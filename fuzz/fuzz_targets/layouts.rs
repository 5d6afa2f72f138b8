#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| kvorum_peer::fuzzing::layouts(data));
