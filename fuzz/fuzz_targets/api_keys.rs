#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| kvorum_auth::fuzzing::api_keys(data));
