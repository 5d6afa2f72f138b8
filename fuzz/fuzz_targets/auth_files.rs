#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| kvorum_auth::fuzzing::auth_files(data));
